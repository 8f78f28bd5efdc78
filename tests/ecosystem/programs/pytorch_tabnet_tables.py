"""TabNet of pytorch-tabnet: pretraining, a classifier and a regressor, saved and loaded."""

import json
import os
import sys
import tempfile
import warnings

import numpy as np
import torch
from pytorch_tabnet.pretraining import TabNetPretrainer
from pytorch_tabnet.tab_model import TabNetClassifier, TabNetRegressor

warnings.simplefilter("ignore")
random = np.random.default_rng(0)
x = random.normal(size=(64, 6)).astype("float32")
y = (x[:, 0] + x[:, 1] > 0).astype("int64")
options = dict(
    n_d=4,
    n_a=4,
    n_steps=2,
    seed=0,
    verbose=0,
    optimizer_fn=torch.optim.SGD,
    optimizer_params={"lr": 0.02},
    device_name="cpu",
)
fit = dict(max_epochs=3, batch_size=32, virtual_batch_size=16, drop_last=False)
pretrainer = TabNetPretrainer(**options)
pretrainer.fit(x, eval_set=[x[:32]], max_epochs=2, batch_size=32, virtual_batch_size=16, num_workers=0)
classifier = TabNetClassifier(**options)
classifier.fit(x, y, eval_set=[(x[:16], y[:16])], **fit)
regressor = TabNetRegressor(**options)
regressor.fit(x, x[:, :1] * 2, **fit)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "tabnet")
if not os.path.exists(f"{file}.zip"):
    classifier.save_model(file)
again = TabNetClassifier()
again.load_model(f"{file}.zip")
assert np.allclose(again.predict_proba(x), classifier.predict_proba(x), atol=1e-5)
explained, masks = classifier.explain(x[:4])
losses = [*classifier.history["loss"], *regressor.history["loss"], *pretrainer.history["loss"]]
numbers = {
    "probabilities": again.predict_proba(x[:3]).tolist(), "regression": regressor.predict(x[:3]).tolist(),
    "explained": explained[0].tolist(), "importances": list(map(float, classifier.feature_importances_)),
}  # fmt: skip
print(json.dumps({"losses": list(map(float, losses)), "numbers": numbers}))
