// Python in a worker, for the pages: `new Python(address).run(program, told)`.

export class Python {
  /** `address` is the folder of runtime.json; `state(text)` is told what happens before a program runs. */
  constructor(address, state = () => {}) {
    this.address = new URL(address, document.baseURI).href
    this.state = state
  }

  /** Loads and starts Python, once. Returns a promise. */
  start() {
    let said = ''
    return this.ready ??= kept().then(() => new Promise((resolve, reject) => {
      this.worker = new Worker(new URL('worker.js', import.meta.url), {type: 'module'})
      this.worker.onerror = event => reject(new Error(event.message || 'the worker could not be loaded'))
      this.worker.onmessage = ({data: message}) => {
        if (message.kind === 'loading') this.state(`Loading: ${mega(message.done)} of ${mega(message.of)} MB`)
        else if (message.kind === 'starting') this.state('Starting Python')
        else if (message.kind === 'ready') {
          this.parts = message.parts ?? this.parts
          resolve()
        } else if (message.kind === 'text') said += message.text
        else reject(new Error(`${message.text} ${said}`))
      }
      this.worker.postMessage({kind: 'start', address: this.address, parts: this.parts})
    })).catch(error => {
      this.end()
      throw error
    })
  }

  /** Runs a program. `told` has functions `text(text, isError)` and `file(path, data)`. Returns a promise of
   *  {code, seconds}; `code` is null for a program that was stopped. Only one runs at a time. Tracebacks say `name`.
   *  What a program defines is gone after it, unless `keep`. */
  async run(program, told, {name = 'program.py', keep = false} = {}) {
    const turn = this.turn = {}
    await this.start()
    if (turn.stopped) return {code: null, seconds: 0}
    const since = performance.now(), seconds = () => (performance.now() - since) / 1000
    return new Promise(resolve => {
      turn.stop = () => resolve({code: null, seconds: seconds()})
      this.worker.onmessage = ({data: message}) => {
        if (message.kind === 'text') told.text(message.text, message.error)
        else if (message.kind === 'file') told.file(message.path, message.data)
        else {
          if (message.kind === 'failed') {
            told.text(`The interpreter stopped: ${message.text}\n`, true)
            this.end()
          }
          this.turn = undefined
          resolve({code: message.code ?? 1, seconds: seconds()})
        }
      }
      this.worker.postMessage({kind: 'run', program, name, keep})
    })
  }

  /** Ends what runs, at once, and starts anew what the next run needs. */
  stop() {
    if (!this.turn) return
    this.turn.stopped = true
    if (this.turn.stop) {
      this.end()
      this.turn.stop()
      this.start().catch(() => {})
    }
    this.turn = undefined
  }

  end() {
    this.worker?.terminate()
    this.worker = this.ready = undefined
  }
}

let keeping
/** Has the browser keep this page and what it loads (offline.js). Where it does not, they need the network. */
function kept() {
  return keeping ??= keep().catch(() => {})
}

async function keep() {
  const workers = navigator.serviceWorker // Browsers have it on https and on this machine's own servers.
  if (!workers) return
  const own = await workers.register(new URL('../../offline.js', import.meta.url)) // others may serve the page, too
  const worker = own.active ?? own.waiting ?? own.installing, {port1, port2} = new MessageChannel()
  while (worker.state !== 'activated') {
    if (worker.state === 'redundant') return
    await new Promise(resolve => worker.addEventListener('statechange', resolve, {once: true}))
  }
  const loaded = performance.getEntriesByType('resource').map(one => one.name)
  const addresses = [location.origin + location.pathname, ...loaded].filter(one => one.startsWith(location.origin))
  await new Promise(resolve => {
    port1.onmessage = resolve
    worker.postMessage({kind: 'keep', addresses}, [port2])
  })
}

if (navigator.serviceWorker?.controller) addEventListener('load', kept) // What was kept may be of an older site.

const mega = bytes => (bytes / 1e6).toFixed(1)

export const KINDS = {svg: 'image/svg+xml', png: 'image/png', jpg: 'image/jpeg', gif: 'image/gif', html: 'text/html'}
const MOST = 200000

/** Shows what a program prints and draws, in an element. */
export class Output {
  constructor(place) {
    this.place = place
    this.clear()
  }

  clear() {
    this.place.replaceChildren()
    this.files = new Map()
    this.waiting = []
  }

  /** Adds text; many small pieces at once. */
  text(text, error = false) {
    const last = this.waiting.at(-1)
    if (last && last.error === error) last.text += text
    else this.waiting.push({text, error})
    this.timer ??= setTimeout(() => this.flush(), 16)
  }

  flush() {
    clearTimeout(this.timer)
    this.timer = undefined
    for (const {text, error} of this.waiting) {
      let block = this.place.lastElementChild
      if (block?.tagName !== 'PRE' || block.classList.contains('error') !== error) {
        block = document.createElement('pre')
        block.classList.toggle('error', error)
        this.place.append(block)
      }
      block.append(text)
      if (block.textContent.length > MOST) block.textContent = `…${block.textContent.slice(-MOST / 2)}`
      block.scrollTop = block.scrollHeight
    }
    this.waiting = []
  }

  /** Shows a picture or a page. A file that is written again replaces what it was. */
  file(path, data) {
    this.flush()
    const kind = KINDS[path.split('.').at(-1)], name = path.startsWith('home/') ? path.slice(5) : ''
    const address = URL.createObjectURL(new Blob([data], {type: kind}))
    let figure = this.files.get(path)
    if (!figure) {
      figure = document.createElement('figure')
      figure.append(document.createElement(kind === 'text/html' ? 'iframe' : 'img'))
      if (name) {
        const link = document.createElement('a')
        link.textContent = link.download = name
        figure.append(document.createElement('figcaption'))
        figure.lastChild.append(link)
      }
      this.files.set(path, figure)
      this.place.append(figure)
    }
    const shown = figure.firstChild, link = figure.querySelector('a')
    if (link?.href) URL.revokeObjectURL(link.href)
    if (link) link.href = address
    if (kind === 'text/html') {
      shown.title = name || 'What the program shows'
      shown.setAttribute('sandbox', 'allow-scripts')
      shown.srcdoc = new TextDecoder().decode(data)
    } else {
      shown.alt = kind === KINDS.svg ? described(new TextDecoder().decode(data)) : name
      shown.src = address
    }
  }
}

/** What a picture says of itself, for who cannot see it. */
export function described(svg) {
  const root = new DOMParser().parseFromString(svg, 'image/svg+xml').documentElement
  const own = name => [...root.children].find(child => child.tagName === name)?.textContent ?? ''
  return [own('title'), own('desc')].filter(Boolean).join(': ') || 'A picture'
}
