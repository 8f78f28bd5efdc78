// An old address of an entry (torch.html#torch.cumsum) leads to the entry's own page.
(() => {
  const mark = decodeURIComponent(location.hash.slice(1));
  for (let name = mark; name; name = name.replace(/\.?[^.]*$/, "")) {
    const row = document.getElementById(name);
    if (row && row.dataset.page) {
      location.replace(row.dataset.page + (name === mark ? "" : "#" + mark));
      break;
    }
  }
})();

// A button on each block of code copies it; of an interactive session, what was typed.
document.querySelectorAll(".highlight > pre").forEach((block) => {
  const language = block.closest("[class*=highlight-]");
  if (!language || !navigator.clipboard || language.classList.contains("highlight-text")) return;
  const button = document.createElement("button");
  button.className = "copy";
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.onclick = async () => {
    let text = block.textContent.replace(/\n$/, "");
    if (/^>>> /m.test(text)) {
      text = text.split("\n").filter((line) => /^(>>>|\.\.\.)( |$)/.test(line)).map((line) => line.slice(4)).join("\n");
    } else if (/^\$ /m.test(text)) {
      text = text.split("\n").filter((line) => line.startsWith("$ ")).map((line) => line.slice(2)).join("\n");
    }
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  };
  block.parentElement.append(button);
});
