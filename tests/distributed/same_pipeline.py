"""The same training with PyTorch and with tensorgrad; what every rank runs for `test_pipelining.py`."""

import json


def results(torch, dist, pipelining, schedules):
    """Outputs, losses and gradients of four layers, in stages on however many ranks there are."""
    rank, size = dist.get_rank(), dist.get_world_size()
    found = {}
    for name, scale_grads in (("GPipe", True), ("1F1B", False), ("Interleaved1F1B", True), ("LoopedBFS", True)):
        several = name in ("Interleaved1F1B", "LoopedBFS")
        count = 4 if several else size
        stages, layers = [], {}
        for i in range(rank, count, size):
            module = torch.nn.Sequential()
            for j in range(i * 4 // count, (i + 1) * 4 // count):
                layers[j] = torch.nn.Linear(3, 3).double()
                with torch.no_grad():
                    layers[j].weight.copy_(torch.arange(9, dtype=torch.float64).view(3, 3).sin() + j)
                    layers[j].bias.copy_(torch.arange(3, dtype=torch.float64).cos())
                module.append(layers[j])
                module.append(torch.nn.Tanh())
            stages.append(pipelining.PipelineStage(module, i, count, torch.device("cpu")))
        schedule = schedules.get_schedule_class(name)(
            stages if several else stages[0], 4, loss_fn=torch.nn.MSELoss(), scale_grads=scale_grads
        )
        x = torch.arange(24, dtype=torch.float64).view(8, 3).cos()
        inputs, target = ((x,) if rank == 0 else ()), (x.flip(0) if rank == size - 1 else None)
        for step in range(2):  # gradients add up
            losses = []
            output = schedule.step(*inputs, target=target, losses=losses)
            if output is not None:
                found[f"{name}, output {step}"] = output.tolist()
                found[f"{name}, losses {step}"] = [loss.item() for loss in losses]
            for j, layer in layers.items():
                found[f"{name}, gradient {step} of layer {j}"] = layer.weight.grad.tolist()
    return found


if __name__ == "__main__":
    import tensorgrad as torch
    import tensorgrad.distributed as dist
    from tensorgrad.distributed import pipelining

    dist.init_process_group("gloo")
    print(json.dumps(results(torch, dist, pipelining, pipelining.schedules)))
    dist.destroy_process_group()
