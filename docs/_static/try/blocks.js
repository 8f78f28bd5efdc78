// A button on each block of a page's program runs it, after what comes before it, with what that has defined.
import {Output, Python} from './runtime.js'

const here = new URL('.', import.meta.url).href
const answer = await fetch(`${here}runtime/runtime.json`).catch(() => ({ok: false}))
if (answer.ok) {
  const {blocks} = document.querySelector('script[data-blocks]').dataset
  const before = await fetch(`${here}blocks.json`).then(found => found.json()).then(all => all[blocks])
  const places = [...document.querySelectorAll('.highlight-python')]
  const ran = new Set() // numbers of blocks that have run in this interpreter
  let current, python, shown
  const say = words => current && (current.state.textContent = words)

  before.forEach(({page, code, not}, number) => {
    if (page !== location.pathname.split('/').at(-1).replace(/\.html$/, '')) return
    const at = places.findIndex(place => place.querySelector('pre').textContent.trim() === code.trim())
    if (at < 0) return
    const [place] = places.splice(at, 1)
    const bar = document.createElement('div'), button = document.createElement('button')
    const state = document.createElement('span'), result = document.createElement('div')
    bar.className = 'try try-block'
    button.type = 'button'
    button.textContent = 'Run'
    button.setAttribute('aria-label', `Run this block, ${number + 1} of ${before.length}`)
    state.setAttribute('role', 'status')
    result.className = 'try-output'
    bar.append(button, state, result)
    place.after(bar)
    button.disabled = Boolean(not)
    state.textContent = not ?? ''
    button.onclick = () => current ? current.number === number && python.stop() : run(number, {number, button, state, result})
  })

  async function run(number, one) {
    current = one
    one.button.textContent = 'Stop'
    const output = new Output(one.result)
    python ??= new Python(`${here}runtime`, say)
    const quiet = {text: (words, error) => error && output.text(words, true), file: () => {}}
    let code = 0
    try {
      for (let i = 0; i <= number && code === 0; i++) {
        if (before[i].not || i < number && ran.has(i)) continue
        await python.start()
        say(i < number ? `Running what comes before: ${i + 1} of ${number + 1}` : 'Running')
        const name = `${before[i].page}, block ${before[i].number}`
        code = (await python.run(before[i].code, i < number ? quiet : output, {name, keep: true})).code
        if (code === 0) ran.add(i)
        if (code === null || !python.worker) ran.clear()
      }
      output.flush()
      say(code === null ? 'Stopped' : code ? 'An error' : 'Finished')
    } catch (error) {
      say(`Python could not be loaded: ${error.message}`)
    }
    one.button.textContent = 'Run'
    current = undefined
  }
}
