// Runs programs in a thread of its own, so that the page stays alive and can end one that does not.
//   it gets   {kind: 'start', address, parts}     loads what `parts` lacks, and starts Python
//             {kind: 'run', program, name, keep}    `keep`: for the next program, what this one defines is still there
//   it sends  {kind: 'loading', done, of}, {kind: 'starting'}, {kind: 'ready', parts}
//             {kind: 'text', error, text}, {kind: 'file', path, data}, {kind: 'done', code} or {kind: 'failed', text}
import {bytes, Exit, file, find, folder, system} from './wasi.js'

const tell = (message, moved = []) => postMessage(message, moved)
let parts, interpreter

async function loaded(address) {
  const about = await answered(`${address}/runtime.json`).then(answer => answer.json())
  const start = await answered(new URL('run.py', import.meta.url)).then(answer => answer.text())
  const files = Object.entries(about.files), of = files.reduce((sum, [, one]) => sum + one.bytes, 0)
  let done = 0
  const [module, library] = await Promise.all(files.map(async ([name, one]) => {
    const answer = await answered(`${address}/${name}.bin?${one.sha256.slice(0, 12)}`)
    const data = new Uint8Array(one.bytes)
    let place = 0
    for (const reader = answer.body.getReader(); ;) {
      const {done: end, value} = await reader.read()
      if (end) break
      if (place + value.length <= data.length) data.set(value, place)
      place += value.length, done += value.length
      tell({kind: 'loading', done, of})
    }
    if (place !== data.length || !await intact(data, one.sha256)) throw new Error(`${name} arrived damaged: reload the page`)
    const unpacked = new Response(new Blob([data]).stream().pipeThrough(new DecompressionStream('gzip')),
      {headers: {'Content-Type': 'application/wasm'}})
    return name.endsWith('.wasm') ? WebAssembly.compileStreaming(unpacked) : unpacked.arrayBuffer()
  }))
  return {module, library, start}
}

async function answered(address) {
  const answer = await fetch(address)
  if (!answer.ok) throw new Error(`${address} is not there (${answer.status})`)
  return answer
}

async function intact(data, wanted) {
  if (!crypto.subtle) return true // Browsers have it on https and on this machine's own servers.
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', data))
  return [...digest].map(byte => byte.toString(16).padStart(2, '0')).join('') === wanted
}

/** An interpreter with a file system of its own. `parts.image` is its memory after `parts.start` has run. */
function started() {
  const root = folder()
  for (const path of ['usr', 'usr/local', 'usr/local/lib', 'tmp', 'home', 'shown']) {
    const {parent} = find(root, path)
    parent.entries.set(path.split('/').at(-1), folder())
  }
  find(root, 'usr/local/lib').node.entries.set('python315.zip', file(new Uint8Array(parts.library)))
  const printed = [printer(false), printer(true)]
  const told = {
    text: (stream, data) => printed[stream - 1]?.write(data),
    closed: (path, node) => {
      path = path.replace(/^\/+/, '')
      if (!/^(home|shown)\/.*\.(svg|html|png|jpg|gif)$/.test(path)) return
      printed.forEach(each => each.flush())
      const data = bytes(node).slice()
      tell({kind: 'file', path, data}, [data.buffer])
    },
  }
  let instance
  const functions = system({
    root, told, argv: ['python'], environment: ['HOME=/home', 'TMPDIR=/tmp', 'PYTHONTZPATH='],
    memory: () => instance.exports.memory,
  })
  instance = new WebAssembly.Instance(parts.module, {wasi_snapshot_preview1: functions, host: {call: () => -1}})
  const {memory, host_alloc, turn} = instance.exports
  if (parts.image) {
    memory.grow((parts.image.byteLength - memory.buffer.byteLength) / 65536)
    new Uint8Array(memory.buffer).set(new Uint8Array(parts.image))
  }
  return {
    root, memory,
    /** Runs some Python among what ran before. Returns its exit code. */
    turn(text) {
      const code = new TextEncoder().encode(text), place = host_alloc(code.length) >>> 0
      if (!place) throw new Error('out of memory')
      new Uint8Array(memory.buffer, place, code.length).set(code)
      try {
        return turn(place, code.length)
      } catch (error) {
        if (error instanceof Exit) return error.code
        throw error
      } finally {
        printed.forEach(each => each.flush())
      }
    },
  }
}

/** Sends text at once, but only so often: a page that gets more messages than it can show stands still. */
function printer(error) {
  const decoder = new TextDecoder()
  let waiting = '', sent = 0, since = 0
  const flush = () => {
    if (waiting) tell({kind: 'text', error, text: waiting})
    waiting = ''
  }
  return {
    flush,
    write(data) {
      waiting += decoder.decode(data, {stream: true})
      const now = performance.now()
      if (now - since > 50) since = now, sent = 0
      if (sent++ < 20 || waiting.length > 1 << 16) flush()
    },
  }
}

function prepared() {
  if (!parts.image) {
    tell({kind: 'starting'})
    interpreter = started()
    if (interpreter.turn(parts.start) !== 0) throw new Error('Python did not start')
    parts.image = interpreter.memory.buffer.slice(0)
  }
  interpreter = started()
}

onmessage = async ({data: message}) => {
  try {
    if (message.kind === 'start') {
      const known = message.parts
      parts = known ?? await loaded(message.address)
      prepared()
      tell({kind: 'ready', parts: known ? undefined : parts})
    } else {
      interpreter ??= started()
      find(interpreter.root, 'home').node.entries.set(message.name, file(new TextEncoder().encode(message.program)))
      const code = interpreter.turn(`raise SystemExit(run(${JSON.stringify(message.name)}))`)
      if (!message.keep) interpreter = undefined
      tell({kind: 'done', code})
    }
  } catch (error) {
    tell({kind: 'failed', text: reason(error)})
  }
}

function reason(error) {
  if (error instanceof RangeError && error.message.includes('stack')) return 'a recursion is too deep for a browser'
  if (error instanceof WebAssembly.RuntimeError) return `it has no memory left, or called what is left out here (${error.message})`
  return error.message ?? String(error)
}
