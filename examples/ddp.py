import tensorgrad as torch

__doc__ = """Trains a small convolutional network on handwritten digits in several processes at once.

    python examples/ddp.py --ranks 2                                             starts two processes itself
    python -m tensorgrad.distributed.run --nproc-per-node 2 examples/ddp.py      the launcher starts them
    python examples/ddp.py --ranks 1                                             one process: the same losses

Each process, called a rank, has a copy of the network, and computes the gradients of its part of each batch.
DistributedDataParallel averages the gradients over the ranks while they are computed, so all ranks take the same steps:
those of one process that trains on whole batches. Rank 0 prints, and draws the losses, out/ddp.svg.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import Checkpoint, make_parser, run, say, seconds, start, start_ranks
from data import load_images
from picture import save_curves
from train_digits import make_network

nn = torch.nn
dist = torch.distributed


def mean(value):
    """The mean of a number over the ranks."""
    total = torch.tensor(float(value), dtype=torch.float64)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def train_epoch(model, optimizer, loader, device, losses_to_print):
    """One pass over this rank's part of the digits. Returns the mean loss of all ranks."""
    total = 0.0
    for step, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()  # the gradients are averaged in here
        optimizer.step()
        total += loss.item()
        if step < losses_to_print:
            value = mean(loss.item())
            if dist.get_rank() == 0:
                say(f"step {step + 1}  loss {value:.6f}")
    return mean(total / len(loader))


def train(options):
    """What each rank does."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    if options.batch_size % size:
        raise ValueError(f"--batch_size {options.batch_size} cannot be divided among {size} ranks")
    torch.manual_seed(options.seed)
    train_x, train_y, test_x, test_y = map(torch.from_numpy, load_images(options.data))
    network = make_network(train_x.shape[-1]).to(options.device)
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    checkpoint = Checkpoint(torch, options, model=network, optimizer=optimizer)

    digits = torch.utils.data.TensorDataset(train_x, train_y)
    sampler = torch.utils.data.DistributedSampler(digits, seed=options.seed)  # rank r takes each size-th digit
    loader = torch.utils.data.DataLoader(digits, options.batch_size // size, sampler=sampler, drop_last=True)
    for epoch in range(checkpoint.done, options.epochs):
        sampler.set_epoch(epoch)  # another order in each epoch, the same on all ranks
        loss = train_epoch(model, optimizer, loader, options.device, losses_to_print=0 if epoch else 5)
        with torch.no_grad():  # each rank looks at its part of the digits that were held out
            scores = network(test_x[rank::size].to(options.device))
        right = (scores.argmax(dim=1).cpu() == test_y[rank::size]).sum().item()
        accuracy = mean(right) * size / len(test_y)
        if rank == 0:
            say(f"epoch {epoch + 1}/{options.epochs}  loss {loss:.4f}  held-out accuracy {accuracy:.2%}")
            checkpoint.save(epoch + 1, loss=loss)
    if rank == 0:
        print(f"{size} {'rank' if size == 1 else 'ranks'}, {seconds(options)}")
        save_curves(torch, checkpoint.history, options.out / "ddp.svg", "Cross entropy", "epoch")
        print(f"picture: {options.out / 'ddp.svg'}")
    dist.destroy_process_group()


def main():
    parser = make_parser(__doc__, "ddp", ranks=2, epochs=8, batch_size=32)
    parser.add_argument("--lr", type=float, default=3e-3, help="size of a step (%(default)s)")
    options = start(torch, parser)
    start_ranks(torch, options.ranks, train, options)


if __name__ == "__main__":
    run(main)
