"""Files that are not checkpoints: the error says what they are, from their first bytes."""

import io
import pickle
import zipfile

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.serialization.first_bytes import BEGINNINGS


def saved(write):
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def zipped(name):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, b"1")
    return file.getvalue()


FILES = {
    "npy": (saved(lambda file: np.save(file, np.ones(3))), "a NumPy array"),
    "npz": (saved(lambda file: np.savez(file, x=np.ones(3))), "a zip archive of NumPy arrays"),
    "zip": (zipped("a/word/document.xml"), "a zip archive without data.pkl"),
    "safetensors": (len(b'{"x":{}}').to_bytes(8, "little") + b'{"x":{}}', "a safetensors file"),
    "text": (b"epoch,loss\n1,0.5\n2,0.25\n", "a text"),
    "indented JSON": (b'\n  {"lr": 0.1}', "text in JSON"),
    "value 101": (b"hello, this is not a checkpoint", "a text"),
    "bytes": (bytes(range(1, 40)), "something that begins with b'"),
    **{what: (begin + bytes(20), what) for begin, what in BEGINNINGS.items()},
}


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_the_error_says_what_the_file_is(name, weights_only):
    content, what = FILES[name]
    if name == "bytes" and not weights_only:
        what = ""  # pickle may then read it
    with pytest.raises(pickle.UnpicklingError) as caught:
        tg.load(io.BytesIO(content), weights_only=weights_only)
    assert "not a checkpoint" in str(caught.value) and what in str(caught.value)
    assert "value 101" not in str(caught.value)


@pytest.mark.parametrize("protocol", range(1, 5))  # 0 is refused
@pytest.mark.parametrize("zipfile_format", [True, False])
def test_checkpoints_of_every_protocol_are_still_read(protocol, zipfile_format):
    file = io.BytesIO()
    tg.save({"x": tg.ones(3)}, file, pickle_protocol=protocol, _use_new_zipfile_serialization=zipfile_format)
    file.seek(0)
    assert tg.load(file, weights_only=protocol != 4)["x"].tolist() == [1.0] * 3
