# A GPT of one layer learns how names are spelled, and invents some.
import tensorgrad as torch
from tensorgrad import nn

torch.manual_seed(0)
NAMES = """
ada adrian agnes alan albert alice alma amelia anna anton arthur barbara bella ben bertha boris
carl carla carmen celia clara claude conrad cora dana daniel david dora edith edna elena elias
ella elmer elsa emil emma eric erna esther eva felix fiona flora frida georg greta hanna hector
helen henri hilda hugo ida ines irene iris jonas julia julian karen karl klara laura lena leo
leon linda lisa lora louis lucas lucia magda mara maria marie mario martha martin max mia mila
mina mona nadia nina nora olga oscar otto paul paula petra ralph rosa ruth samuel sara selma
simon sofia stella susan tessa theo thomas tina vera victor viola walter wanda wilma
""".split()
letters = ".abcdefghijklmnopqrstuvwxyz"  # a dot begins and ends a name
CONTEXT, WIDTH, HEADS = 10, 48, 4
padded = [f".{name}".ljust(CONTEXT + 1, ".") for name in NAMES]
data = torch.tensor([[letters.index(c) for c in name] for name in padded])


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.letter, self.place = nn.Embedding(27, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, 27)

    def forward(self, ids):
        b, t = ids.shape
        x = self.letter(ids) + self.place(torch.arange(t))
        q, k, v = self.qkv(self.before(x)).reshape(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(b, t, WIDTH))
        return self.out(x + self.narrow(nn.functional.gelu(self.wide(self.after(x)))))


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(201):
    chosen = data[torch.randint(0, len(data), (32,))]
    loss = nn.functional.cross_entropy(model(chosen[:, :-1]).flatten(0, 1), chosen[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step:3}  loss {loss.item():.3f}")

print("invented:", end=" ")
with torch.no_grad():
    for _ in range(12):
        ids = [0]
        while len(ids) < CONTEXT:
            chances = model(torch.tensor([ids]))[0, -1].softmax(0)
            ids.append(int(torch.multinomial(chances, 1)))
            if ids[-1] == 0:
                break
        print("".join(letters[i] for i in ids).strip("."), end=" ", flush=True)
print()
