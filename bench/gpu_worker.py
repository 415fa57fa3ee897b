"""The programs of bench/gpu.py that need PyTorch: a decoder that trains on a device, and questions to the device.

    python gpu_worker.py [--in-process] FOLDER DEVICE SIZE     train under gangctl with the weights in FOLDER
    python gpu_worker.py FOLDER DEVICE SIZE QUESTION           answer in lines of JSON (:data:`QUESTIONS`)

FOLDER/ATTEMPT-RANK gets the moments of an attempt, in seconds since the epoch.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

IN_PROCESS = "--in-process"
SIZES = {"tiny": (64, 2), "small": (512, 8), "1.3b": (2048, 24), "6.7b": (4096, 32)}
"""Width and layers; the two large ones are those of GPT-3."""
HEAD, VOCABULARY, TOKENS = 64, 32000, 512
PAUSE = 0.1
"""Seconds between two reports of progress."""
FORK_SECONDS = 60.0
"""A forked child that hasn't used the device by then hangs."""


@functools.cache
def decoder(device: str, size: str) -> Any:
    """The model, compiled layer by layer, its weights not set. A process that goes on keeps it."""
    torch: Any = importlib.import_module("torch")
    width, layers = SIZES[size]
    form = {"batch_first": True, "norm_first": True, "dropout": 0.0}
    torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
    with torch.device("meta"):
        layer = torch.nn.TransformerEncoderLayer
        blocks = [layer(width, width // HEAD, 4 * width, **form) for _ in range(layers)]
        model = torch.nn.Sequential(
            torch.nn.Embedding(VOCABULARY, width), *blocks, torch.nn.Linear(width, VOCABULARY, bias=False)
        ).to_empty(device=device)
    for block in blocks if shutil.which("g++") else []:
        block.compile()
    return model


def use(device: str) -> None:
    """Multiply on the device, which creates the context of this process, and wait for the result."""
    torch: Any = importlib.import_module("torch")
    square = torch.ones(1024, 1024, device=device)
    (square @ square).sum().item()


def loaded(folder: str, device: str, size: str) -> Any:
    """The model with the weights of the file."""
    torch: Any = importlib.import_module("torch")
    model = decoder(device, size)
    model.load_state_dict(torch.load(Path(folder, "weights"), mmap=True))
    if device == "cuda":
        torch.cuda.synchronize()
    return model


def train(gang: Any) -> None:
    """Make two steps, note each phase, and report progress until the end."""
    folder, device, size = WORDS
    moments = {"script": time.time()}

    def reached(phase: str) -> None:
        moments[phase] = time.time()

    torch: Any = importlib.import_module("torch")
    reached("imported")
    use(device)
    reached("context")
    torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    one = torch.ones(1, device=device)
    torch.distributed.all_reduce(one)
    one.item()
    reached("group")
    model = loaded(folder, device, size)
    reached("loaded")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (1, TOKENS), device=device)
    for phase in ("step", "again"):
        loss = torch.nn.functional.cross_entropy(model(tokens)[0].float(), tokens[0])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # Waits for all that the device has to do for the loss; the update is enqueued behind it.
        if device == "cuda":
            torch.cuda.synchronize()
        reached(phase)
    gang.progress(2)
    noted = Path(folder, f"{os.environ['GANG_ATTEMPT']}-{os.environ['RANK']}")
    noted.with_suffix(".tmp").write_text(json.dumps(moments))
    noted.with_suffix(".tmp").rename(noted)
    for step in itertools.count(3):
        time.sleep(PAUSE)
        gang.progress(step)


# Questions.


def answer(**values: Any) -> None:
    """Print it."""
    print(json.dumps(values), flush=True)


def make_weights(folder: str, device: str, size: str) -> None:
    """Write random weights; answer with the device and the size of the model."""
    torch: Any = importlib.import_module("torch")
    model = decoder(device, size)
    for one in model.parameters():
        torch.nn.init.normal_(one, std=0.02)
    torch.save(model.state_dict(), Path(folder, "weights"))
    count = sum(one.numel() for one in model.parameters())
    card = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {os.cpu_count()} cores"
    answer(card=card, torch=torch.__version__, cuda=torch.version.cuda, parameters=count, compiles=shutil.which("g++"))


def watch(_folder: str, device: str, _size: str) -> None:
    """For each process ID that comes in: the memory in use on the card; on a CPU that of the process."""
    torch: Any = importlib.import_module("torch")
    for line in sys.stdin:
        if device == "cuda":
            free, total = torch.cuda.mem_get_info()
            answer(bytes=total - free)
        else:
            status = Path(f"/proc/{int(line)}/status")
            lines = status.read_text().splitlines() if status.exists() else []
            answer(bytes=sum(int(one.split()[1]) << 10 for one in lines if one.startswith("VmRSS")))


def hold(folder: str, device: str, size: str) -> None:
    """Create a context; then, when a line comes in, load the weights; then wait to be killed."""
    began = time.monotonic()
    importlib.import_module("torch")
    imported = time.monotonic()
    use(device)
    answer(imports=imported - began, context=time.monotonic() - imported)
    sys.stdin.readline()
    model = loaded(folder, device, size)
    answer(parameters=len(list(model.parameters())))
    signal.pause()


def fork(_folder: str, device: str, _size: str) -> None:
    """Fork later and later; each child uses the device."""
    torch: Any = importlib.import_module("torch")
    states = {"import torch": bool, "torch.cuda.is_available()": torch.cuda.is_available}
    for state, reach in {**states, "the first use of the device": lambda: use(device)}.items():
        reach()
        began, (ours, theirs) = time.monotonic(), os.pipe()
        child = os.fork()
        if child == 0:
            try:
                use(device)
            except BaseException as error:  # noqa: BLE001 - it is the answer
                os.write(theirs, str(error).splitlines()[0].encode())
            os._exit(0)
        os.close(theirs)
        while not (ended := os.waitpid(child, os.WNOHANG)[0]) and time.monotonic() < began + FORK_SECONDS:
            time.sleep(0.005)
        seconds = time.monotonic() - began
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        failed = os.read(ours, 1000).decode() if ended else f"it hangs, and is killed after {FORK_SECONDS:.0f} s"
        answer(after=state, seconds=seconds, error=failed)


QUESTIONS = {"weights": make_weights, "watch": watch, "hold": hold, "fork": fork}

if __name__ == "__main__":
    WORDS = [word for word in sys.argv[1:] if word != IN_PROCESS]
    if WORDS[-1] in QUESTIONS:
        QUESTIONS[WORDS.pop()](*WORDS)
    else:
        gangclient: Any = importlib.import_module("gangclient.pytorch") and importlib.import_module("gangclient")
        if IN_PROCESS in sys.argv:
            gangclient.run(train, finalize=gangclient.pytorch.leave)
        else:
            train(gangclient.connect())
