"""Serves sentence embeddings over HTTP with sentence-transformers, on NumPy: no torch is installed.

    pip install '.[bfloat16]'                   in a checkout of tensorgrad
    python -m tensorgrad.compat enable          from now on `import torch` is tensorgrad; pip sees that torch is there
    pip install sentence-transformers           brings no torch
    python examples/libraries/embedding_server.py MODEL   a folder with a model, or a name to download

    curl -d '["a cat on a mat", "rain in town"]' localhost:8000

Without MODEL it makes a small untrained one, to try the server. `--once TEXT` prints one embedding and ends.
"""

import argparse
import json
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

try:
    import torch
    from sentence_transformers import SentenceTransformer
except ImportError as error:
    sys.exit(f"{error}: this example needs sentence-transformers")


def untrained(folder):
    """Writes a model of two layers with a tokenizer of letters, as those that one downloads."""
    import transformers
    from sentence_transformers.sentence_transformer import modules
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    letters = {text: i for i, text in enumerate(["[PAD]", "[UNK]", *"abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'"])}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(letters), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    transformers.BertModel(config).save_pretrained(folder)
    encoder = modules.Transformer(folder, max_seq_length=128)
    pooling = modules.Pooling(encoder.get_embedding_dimension(), pooling_mode="mean")
    return SentenceTransformer(modules=[encoder, pooling, modules.Normalize()], device="cpu")


class Handler(BaseHTTPRequestHandler):
    """Answers a JSON list of sentences with the list of their embeddings."""

    model: SentenceTransformer

    def do_POST(self):
        try:
            sentences = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not isinstance(sentences, list) or not all(isinstance(text, str) for text in sentences):
                raise ValueError("send a JSON list of sentences")
        except (TypeError, ValueError) as error:
            self.send_error(400, str(error))
            return
        answer = json.dumps(self.model.encode(sentences, show_progress_bar=False).tolist()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", nargs="?", help="a folder with a model, or a name to download")
parser.add_argument("--once", metavar="TEXT", help="print the embedding of a text, and end")
parser.add_argument("--port", type=int, default=8000)
options = parser.parse_args()
Handler.model = SentenceTransformer(options.model, device="cpu") if options.model else untrained(tempfile.mkdtemp())
if options.once:
    print(json.dumps(Handler.model.encode([options.once], show_progress_bar=False)[0].tolist()))
else:
    with ThreadingHTTPServer(("127.0.0.1", options.port), Handler) as server:
        print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
