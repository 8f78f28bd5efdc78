// The functions that WebAssembly programs ask a system for (WASI preview 1), over a file system in memory.
// https://github.com/WebAssembly/WASI/blob/wasi-0.1/preview1/docs.md

const E = {badf: 8, exist: 20, inval: 28, isdir: 31, noent: 44, notdir: 54, notempty: 55, notsup: 58, spipe: 70}
const CHARACTERS = 2, FOLDER = 3, FILE = 4
const decoder = new TextDecoder(), encoder = new TextEncoder()

export class Exit {
  constructor(code) { this.code = code }
}

let numbers = 1
const stamp = () => BigInt(Date.now()) * 1000000n
export const folder = () => ({number: numbers++, entries: new Map(), time: stamp()})
export const file = (data = new Uint8Array(0)) => ({number: numbers++, data, size: data.length, time: stamp()})

/** Finds what a path leads to: `{parent, name, node}`; `node` is undefined where only the last part is missing. */
export function find(root, path) {
  const trail = [root]
  let parent = root, name = '.', node = root
  for (const part of path.split('/')) {
    if (part === '' || part === '.') continue
    if (!node) throw E.noent
    if (!node.entries) throw E.notdir
    if (part === '..') {
      if (trail.length > 1) trail.pop()
      node = trail.at(-1)
      continue
    }
    parent = node, name = part
    node = node.entries.get(part)
    if (node) trail.push(node)
  }
  return {parent, name, node}
}

export const bytes = node => node.data.subarray(0, node.size)

function resize(node, size) {
  if (size > node.data.length) {
    const larger = new Uint8Array(Math.max(size, 2 * node.data.length))
    larger.set(bytes(node))
    node.data = larger
  } else if (size < node.size) node.data.fill(0, size, node.size)
  node.size = size
}

/** Returns the imports of a program. `told.text(stream, bytes)` gets what it prints, `told.closed(path, node)` each
 *  file that it wrote; `memory()` is the program's memory. */
export function system({root, argv, environment, memory, told}) {
  const view = () => new DataView(memory().buffer)
  const at = (start, length) => new Uint8Array(memory().buffer, start >>> 0, length >>> 0)
  const read = (start, length) => decoder.decode(at(start, length))
  const open = [{stream: 0}, {stream: 1}, {stream: 2}, {node: root, path: '', preopened: true}]
  const known = number => {
    if (!open[number]) throw E.badf
    return open[number]
  }
  const regular = number => {
    const found = known(number)
    if (!found.node) throw E.spipe
    if (found.node.entries) throw E.isdir
    return found
  }
  const below = (number, start, length) => {
    const from = known(number)
    if (!from.node?.entries) throw E.notdir
    return {...find(from.node, read(start, length)), path: `${from.path}/${read(start, length)}`}
  }
  const existing = (...place) => {
    const found = below(...place)
    if (!found.node) throw E.noent
    return found
  }
  const parts = function* (start, count) {
    for (let i = 0; i < count; i++) yield at(view().getUint32(start + 8 * i, true), view().getUint32(start + 8 * i + 4, true))
  }
  const kind = node => node.entries ? FOLDER : FILE
  const describe = (node, to) => {
    at(to, 64).fill(0)
    view().setBigUint64(to + 8, BigInt(node?.number ?? 0), true)
    view().setUint8(to + 16, node ? kind(node) : CHARACTERS)
    view().setBigUint64(to + 24, 1n, true)
    view().setBigUint64(to + 32, BigInt(node?.size ?? 0), true)
    for (const place of [40, 48, 56]) view().setBigUint64(to + place, node?.time ?? 0n, true)
  }
  const strings = list => list.map(text => encoder.encode(text + '\0'))
  const sizes = list => (count, size) => {
    view().setUint32(count, list.length, true)
    view().setUint32(size, strings(list).reduce((sum, each) => sum + each.length, 0), true)
  }
  const copied = list => (places, to) => {
    for (const text of strings(list)) {
      view().setUint32(places, to, true)
      at(to, text.length).set(text)
      places += 4, to += text.length
    }
  }
  const input = (opened, list, count, done, place) => {
    let total = 0
    for (const part of opened.stream === undefined ? parts(list, count) : []) {
      const found = bytes(opened.node).subarray(place + total, place + total + part.length)
      part.set(found)
      total += found.length
      if (found.length < part.length) break
    }
    view().setUint32(done, total, true)
    return total
  }
  const output = (opened, list, count, done, place) => {
    let total = 0
    for (const part of parts(list, count)) {
      if (opened.stream !== undefined) told.text(opened.stream, part.slice())
      else {
        if (place + total + part.length > opened.node.size) resize(opened.node, place + total + part.length)
        opened.node.data.set(part, place + total)
      }
      total += part.length
    }
    view().setUint32(done, total, true)
    if (opened.node) opened.node.time = stamp(), opened.written = true
    return total
  }
  const remove = (place, wanted, wrong) => {
    const {parent, name, node} = existing(...place)
    if (kind(node) !== wanted) throw wrong
    if (node.entries?.size) throw E.notempty
    parent.entries.delete(name)
  }
  const none = () => 0, refused = () => E.notsup

  const functions = {
    args_get: copied(argv), args_sizes_get: sizes(argv),
    environ_get: copied(environment), environ_sizes_get: sizes(environment),
    clock_res_get: (id, to) => view().setBigUint64(to, 1000n, true),
    clock_time_get: (id, precision, to) => {
      const now = id === 0 ? performance.timeOrigin + performance.now() : performance.now()
      view().setBigUint64(to, BigInt(Math.round(now * 1e6)), true)
    },
    random_get: (start, length) => {
      for (let i = 0; i < length; i += 65536) crypto.getRandomValues(at(start + i, Math.min(65536, length - i)))
    },
    proc_exit: code => { throw new Exit(code) },
    sched_yield: none,
    poll_oneoff: (list, to, count, done) => { // Only sleeping: whatever else is waited for is there at once.
      let wait = Infinity
      for (let i = 0; i < count; i++) {
        const one = list + 48 * i
        if (view().getUint8(one + 8) !== 0) wait = 0
        else {
          const until = Number(view().getBigUint64(one + 24, true)) / 1e6
          const now = view().getUint32(one + 16, true) ? performance.now() : Date.now()
          wait = Math.min(wait, view().getUint16(one + 40, true) & 1 ? until - now : until)
        }
        at(to + 32 * i, 32).fill(0)
        at(to + 32 * i, 8).set(at(one, 8))
        view().setUint8(to + 32 * i + 10, view().getUint8(one + 8))
      }
      sleep(wait)
      view().setUint32(done, count, true)
    },

    fd_advise: none, fd_datasync: none, fd_sync: none, fd_fdstat_set_flags: (number, flags) => {
      known(number).append = flags & 1
    },
    fd_close: number => {
      const {node, path, written} = known(number)
      open[number] = undefined
      if (written) told.closed(path, node)
    },
    fd_fdstat_get: (number, to) => {
      const {node, append} = known(number)
      at(to, 24).fill(0)
      view().setUint8(to, node ? kind(node) : CHARACTERS)
      view().setUint16(to + 2, append ? 1 : 0, true)
      at(to + 8, 16).fill(255)
    },
    fd_filestat_get: (number, to) => describe(known(number).node, to),
    fd_filestat_set_size: (number, size) => resize(regular(number).node, Number(size)),
    fd_filestat_set_times: none,
    fd_prestat_get: (number, to) => {
      if (!known(number).preopened) throw E.badf
      view().setUint8(to, 0)
      view().setUint32(to + 4, 1, true)
    },
    fd_prestat_dir_name: (number, to) => at(to, 1).set(encoder.encode('/')),
    fd_read: (number, list, count, done) => {
      const opened = known(number)
      if (opened.node?.entries) throw E.isdir
      opened.place += input(opened, list, count, done, opened.place)
    },
    fd_pread: (number, list, count, place, done) => { input(regular(number), list, count, done, Number(place)) },
    fd_write: (number, list, count, done) => {
      const opened = known(number)
      if (opened.append) opened.place = opened.node.size
      opened.place += output(opened, list, count, done, opened.place)
    },
    fd_pwrite: (number, list, count, place, done) => { output(regular(number), list, count, done, Number(place)) },
    fd_seek: (number, offset, from, to) => {
      const opened = regular(number)
      const place = [0, opened.place, opened.node.size][from] + Number(offset)
      if (!(place >= 0)) throw E.inval
      opened.place = place
      view().setBigUint64(to, BigInt(place), true)
    },
    fd_tell: (number, to) => view().setBigUint64(to, BigInt(regular(number).place), true),
    fd_readdir: (number, to, length, cookie, done) => {
      const {node} = known(number)
      if (!node?.entries) throw E.notdir
      const list = [['.', node], ['..', node], ...node.entries]
      let used = 0
      for (let i = Number(cookie); i < list.length && used < length; i++) {
        const name = encoder.encode(list[i][0]), entry = new Uint8Array(24 + name.length), head = new DataView(entry.buffer)
        head.setBigUint64(0, BigInt(i + 1), true)
        head.setBigUint64(8, BigInt(list[i][1].number), true)
        head.setUint32(16, name.length, true)
        head.setUint8(20, kind(list[i][1]))
        entry.set(name, 24)
        const fits = entry.subarray(0, length - used)
        at(to + used, fits.length).set(fits)
        used += fits.length
      }
      view().setUint32(done, used, true)
    },

    path_open: (number, follow, start, length, flags, rights, inherited, options, to) => {
      let {parent, name, node, path} = below(number, start, length)
      if (node && flags & 1 && flags & 4) throw E.exist
      if (!node && !(flags & 1)) throw E.noent
      if (node && flags & 2 && !node.entries) throw E.notdir
      const created = !node
      if (created) parent.entries.set(name, node = file())
      if (flags & 8 && !node.entries) resize(node, 0)
      const free = open.findIndex((each, i) => i > 3 && !each), place = free < 0 ? open.length : free
      open[place] = {node, path, place: 0, append: options & 1, written: created || Boolean(flags & 8)}
      view().setUint32(to, place, true)
    },
    path_filestat_get: (number, follow, start, length, to) => describe(existing(number, start, length).node, to),
    path_filestat_set_times: none,
    path_create_directory: (number, start, length) => {
      const {parent, name, node} = below(number, start, length)
      if (node) throw E.exist
      parent.entries.set(name, folder())
    },
    path_remove_directory: (...place) => remove(place, FOLDER, E.notdir),
    path_unlink_file: (...place) => remove(place, FILE, E.isdir),
    path_rename: (number, start, length, toNumber, toStart, toLength) => {
      const from = existing(number, start, length), to = below(toNumber, toStart, toLength)
      if (to.node?.entries?.size) throw E.notempty
      from.parent.entries.delete(from.name)
      to.parent.entries.set(to.name, from.node)
      if (!from.node.entries) told.closed(to.path, from.node)
    },
    path_readlink: (number, start, length) => { existing(number, start, length); return E.inval },
    path_link: refused, path_symlink: refused,
    sock_accept: refused, sock_recv: refused, sock_send: refused, sock_shutdown: refused,
  }
  for (const [name, run] of Object.entries(functions)) {
    functions[name] = (...given) => {
      try {
        return run(...given) || 0
      } catch (error) {
        if (typeof error === 'number') return error
        throw error
      }
    }
  }
  for (const name of ['clock_res_get', 'random_get']) functions[name] = functions[name]
  return functions
}

function sleep(milliseconds) {
  if (!(milliseconds > 0)) return
  // Pages may not share memory without special headers from their server; one within WebAssembly can still be waited on.
  const shared = new WebAssembly.Memory({initial: 1, maximum: 1, shared: true}).buffer
  Atomics.wait(new Int32Array(shared), 0, 0, milliseconds)
}
