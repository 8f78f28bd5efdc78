// Keeps the pages that run programs, so that they open and run without a network. A service worker may serve only what
// lies below it, so the site has this file in its root.
//   it gets   {kind: 'keep', addresses} and a port, on which it says when they are kept and the page is served by it
const NAME = 'tensorgrad-try', RUNTIME = '/_static/try/'

self.addEventListener('install', () => self.skipWaiting())
self.addEventListener('activate', event => event.waitUntil(self.clients.claim()))

self.addEventListener('message', event => {
  if (event.data.kind === 'keep') event.waitUntil(keep(event.data.addresses).then(() => event.ports[0].postMessage('kept')))
})

self.addEventListener('fetch', event => {
  const {method, url} = event.request
  if (method === 'GET' && new URL(url).origin === location.origin) event.respondWith(answered(event))
})

async function keep(addresses) {
  const cache = await caches.open(NAME)
  await Promise.all(addresses.map(async address => {
    if (await cache.match(address)) return
    await cache.delete(address, {ignoreSearch: true}) // what it was before the site was built anew
    await cache.add(address).catch(() => {}) // It isn't there, or there is no space: then it needs the network.
  }))
  await self.clients.claim()
}

/** What the server answers; where it does not, what was kept. */
async function answered(event) {
  const {request} = event, {pathname, search} = new URL(request.url)
  const cache = await caches.open(NAME), options = {ignoreSearch: request.mode === 'navigate'}
  const kept = await cache.match(request, options)
  const fixed = pathname.endsWith('.bin') && search // such an address has a checksum, so always the same content
  if (kept && fixed) return kept
  let answer
  try {
    answer = await fetch(request)
  } catch (error) {
    if (kept) return kept
    throw error
  }
  if (answer.status === 200 && (kept || pathname.includes(RUNTIME))) {
    if (fixed) await cache.delete(request, {ignoreSearch: true})
    const address = options.ignoreSearch ? pathname : request
    event.waitUntil(cache.put(address, answer.clone()).catch(() => {}))
  }
  return answer
}
