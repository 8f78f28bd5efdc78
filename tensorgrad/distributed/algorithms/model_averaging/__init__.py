"""`torch.distributed.algorithms.model_averaging`: processes train alone and average parameters now and then."""

from tensorgrad.system.lazy_modules import later as _later

_later(__name__, ("averagers", "hierarchical_model_averager", "utils"))
