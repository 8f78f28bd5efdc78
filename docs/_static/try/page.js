// The page "Try it": an editor, programs to choose from, and what they print and draw.
import {Output, Python} from './runtime.js'

const page = document.getElementById('try')
const part = name => page.querySelector(`.try-${name}`)
const editor = part('editor'), text = part('text'), shadow = part('shadow'), numbers = part('numbers')
const choice = part('choice'), go = part('run'), stop = part('stop'), state = part('state')
const programs = JSON.parse(part('programs').textContent)
const output = new Output(part('output'))
const python = new Python(page.dataset.runtime, say)
let wrong // the line of an error

function say(words, kind = '') {
  if (state.textContent !== words) state.textContent = words
  state.dataset.kind = kind
}

const WORDS = 'and as assert async await break class continue def del elif else except finally for from global if ' +
  'import in is lambda nonlocal not or pass raise return try while with yield True False None'
const TOKENS = new RegExp(String.raw`(#.*)|([rbfu]*(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|` +
  String.raw`'(?:\\.|[^'\\\n])*'?))|\b(${WORDS.replaceAll(' ', '|')})\b|\b(\d[\d_.]*(?:e[+-]?\d+)?)\b|[A-Za-z_]\w*`, 'gi')
const CLASSES = ['c1', 's2', 'k', 'mi'] // those of the page's other blocks

function draw() {
  const code = text.value, made = document.createDocumentFragment()
  let place = 0
  for (const found of code.matchAll(TOKENS)) {
    const kind = CLASSES.find((_, i) => found[i + 1] !== undefined)
    if (!kind) continue
    const token = document.createElement('span')
    token.className = kind
    token.textContent = found[0]
    made.append(code.slice(place, found.index), token)
    place = found.index + found[0].length
  }
  made.append(code.slice(place) + '\n')
  shadow.replaceChildren(made)
  const lines = code.split('\n').map((_, i) => {
    const line = document.createElement('span')
    line.textContent = i + 1
    line.classList.toggle('wrong', i + 1 === wrong)
    return line
  })
  numbers.replaceChildren(...lines)
}

function edit(insert) { // As if typed, so that it can be undone.
  text.focus()
  if (!document.execCommand('insertText', false, insert)) text.setRangeText(insert, text.selectionStart, text.selectionEnd, 'end')
  changed()
}

function changed() {
  wrong = undefined
  draw()
}

let leaving = false // after Escape, Tab leaves the editor
text.addEventListener('input', changed)
text.addEventListener('keydown', event => {
  if (event.key === 'Escape') return void (leaving = true)
  const {selectionStart: start, selectionEnd: end, value} = text
  if (event.key === 'Tab' && !leaving && !event.shiftKey && !event.ctrlKey && !event.altKey) {
    event.preventDefault()
    edit('    ')
  } else if (event.key === 'Enter' && !event.ctrlKey && !event.metaKey && start === end) {
    const line = value.slice(value.lastIndexOf('\n', start - 1) + 1, start)
    const indent = line.match(/^ */)[0] + (/:\s*(#.*)?$/.test(line) ? '    ' : '')
    if (indent) {
      event.preventDefault()
      edit('\n' + indent)
    }
  }
  if (event.key !== 'Shift') leaving = false
})
page.addEventListener('keydown', event => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault()
    run()
  }
})

choice.addEventListener('change', () => {
  text.value = programs[choice.value]
  changed()
  editor.scrollTop = 0
})

let running = false
async function run() {
  if (running) return
  running = true
  go.disabled = true
  stop.disabled = false
  output.clear()
  changed()
  let errors = '', begun = false
  const began = () => begun || (begun = true, say('Running', 'busy'))
  say('Loading', 'busy')
  try {
    python.start().then(began, () => {})
    const {code, seconds} = await python.run(text.value, {
      text: (words, error) => {
        if (error) errors = (errors + words).slice(-20000)
        output.text(words, error)
      },
      file: (path, data) => output.file(path, data),
    })
    output.flush()
    const time = `after ${seconds.toFixed(1)} s`
    wrong = code ? Number([...errors.matchAll(/File "program\.py", line (\d+)/g)].at(-1)?.[1]) || undefined : undefined
    if (code === null) say(`Stopped ${time}`)
    else if (code === 0) say(`Finished ${time}`, 'good')
    else say(wrong ? `An error in line ${wrong}, ${time}` : `An error ${time}`, 'bad')
    if (wrong) {
      draw()
      numbers.children[wrong - 1]?.scrollIntoView({block: 'nearest'})
    }
  } catch (error) {
    say(`Python could not be loaded: ${error.message}`, 'bad')
  }
  running = false
  go.disabled = false
  if (document.activeElement === stop) go.focus()
  stop.disabled = true
}

go.addEventListener('click', run)
stop.addEventListener('click', () => python.stop())
text.value = programs[choice.value]
draw()

// Where the runtime was not put beside the page, it says so instead of failing later.
fetch(`${page.dataset.runtime}/runtime.json`).then(answer => answer.ok, () => false).then(there => {
  if (there) go.disabled = false
  else say(location.protocol === 'file:' ? part('server').textContent : part('missing').textContent, 'bad')
})
