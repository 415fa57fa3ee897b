"""Secrets in what is kept of a worker's output."""

from __future__ import annotations

import time

import pytest

from gangctl.core.facts.printed import MAX_READ, mask_secrets

KEY = "Zm9v" * 16


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("{'authorization': 'Basic dXNlcjpwdw==', 'host': 'a'}", "{'authorization': 'Basic ***', 'host': 'a'}"),
        ("Proxy-Authorization: abcdef", "Proxy-Authorization: ***"),
        ("Cookie: a=b; c=d", "Cookie: ***"),
        ("curl -H bearer abcdefgh12", "curl -H bearer ***"),
        ("password=hunter2 user=ann", "password=*** user=ann"),
        ('"db_password": "hun ter2", "port": 1', '"db_password": ***, "port": 1'),
        ("PGPASSWORD=hunter2", "PGPASSWORD=***"),
        ("passphrase: 'a b", "passphrase: ***"),
        ("pwd=abc", "pwd=***"),
        ("client_secret: abc, next", "client_secret: ***, next"),
        ("WANDB_API_KEY=0123abc", "WANDB_API_KEY=***"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = ***"),
        ("token=abc123def", "token=***"),
        ("HF_TOKEN: abc", "HF_TOKEN: ***"),
        ("train.py --hub-token abcdef --steps 3", "train.py --hub-token *** --steps 3"),
        ("train.py --password=abcdef", "train.py --password=***"),
        ("Command '['mysql', '--password', 'hunter2', 'db']'", "Command '['mysql', '--password', '***', 'db']'"),
        ("['train.py', '--hf-token', 'abc']", "['train.py', '--hf-token', '***']"),
        ("TELEGRAM_TOKEN=8123456789:AAFabc", "TELEGRAM_TOKEN=***"),
        ("password=abc,def user=ann", "password=*** user=ann"),
        ("https://u:p@ss@host/x", "https://***@host/x"),
        ("postgres://u:p/ss@host", "postgres://***@host"),
        ("postgres://ann:hunter2@db:5432/x", "postgres://***@db:5432/x"),
        ("https://b.s3.amazonaws.com/k?X-Amz-Signature=ab12&X-Amz-Date=1", "https://b.s3.amazonaws.com/k?X-Amz-Signature=***&X-Amz-Date=***"),
        ("https://a.blob.core.windows.net/c?sv=1&sig=ab%3D", "https://a.blob.core.windows.net/c?sv=1&sig=***"),
        ("key AKIAIOSFODNN7EXAMPLE denied", "key *** denied"),
        ("ghp_" + "a1" * 18, "***"),
        ("glpat-" + "a1" * 10, "***"),
        ("hf_" + "aB" * 17, "***"),
        ("sk-proj-" + "aB" * 17, "***"),
        ("xoxb-12345678901-abc", "***"),
        ("AIza" + "b" * 35, "***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "***"),
        (KEY, "***"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_masked(line: str, shown: str) -> None:
    assert mask_secrets(line) == shown
    assert mask_secrets(shown) == shown


def test_a_line_that_looks_like_names_of_secrets_takes_no_time() -> None:
    began = time.process_time()
    assert len(mask_secrets("passwd" * 20_000)) <= MAX_READ
    assert time.process_time() - began < 1.0, "it took 18 s without a bound"


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: no dataset at /data",
        "KeyError: 'pad_token'",
        "tokens=4096 max_tokens: 1024 tokens_per_second=3.5",
        "token: 17",
        "step 8, loss 0.25, lr 1e-4",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.1 GiB",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
        "https://example.com/a?b=c",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "tokenizer=gpt2",
        "=" * 80,
        "x" * 80,
        "0123456789abcdef" * 4,
    ],
)
def test_what_tells_of_a_fault_stays(line: str) -> None:
    assert mask_secrets(line) == line
