// The kernel of JupyterLite's notebooks: the Python of the page "Try it". A container as module federation wants it: its
// pages load this script, hand it the modules that they share, and ask it for the extension.
{
  const site = new URL('../../../', document.currentScript.src).href
  const runtime = import(`${site}_static/try/runtime.js`)
  let shared

  async function extension() {
    const {BaseKernel, IKernelSpecs} = (await Object.values(shared['@jupyterlite/services'])[0].get())()
    const {Python, KINDS, described} = await runtime

    class Kernel extends BaseKernel {
      constructor(options) {
        super(options)
        this.python = new Python(`${site}_static/try/runtime`)
      }

      dispose() {
        this.python.end()
        super.dispose()
      }

      async kernelInfoRequest() {
        return {
          status: 'ok', protocol_version: '5.3', implementation: 'tensorgrad', implementation_version: '1', help_links: [],
          banner: 'tensorgrad, on CPython and NumPy for WebAssembly',
          language_info: {
            name: 'python', version: '3', mimetype: 'text/x-python', file_extension: '.py', pygments_lexer: 'ipython3',
            codemirror_mode: {name: 'python', version: 3}, nbconvert_exporter: 'python',
          },
        }
      }

      async executeRequest({code}) {
        const execution_count = this.executionCount, shown = new Map()
        let errors = ''
        const told = {
          text: (text, error) => {
            if (error) errors = (errors + text).slice(-20000)
            this.stream({name: error ? 'stderr' : 'stdout', text})
          },
          file: (path, data) => {
            const display_id = shown.get(path) ?? `${this.id}-${execution_count}-${path}`, transient = {display_id}
            const content = {data: this.bundle(path, data), metadata: {}, transient}
            if (shown.has(path)) this.updateDisplayData(content)
            else this.displayData(content)
            shown.set(path, display_id)
          },
        }
        try {
          const ended = await this.python.run(code, told, {name: `cell ${execution_count}`, keep: true})
          if (ended.code === 0) return {status: 'ok', execution_count, user_expressions: {}}
        } catch (error) {
          told.text(`Python could not be loaded: ${error.message}\n`, true)
        }
        const [, ename, evalue] = errors.trim().split('\n').at(-1).match(/^([\w.]+)(?:: (.*))?$/) ?? [0, 'Error', '']
        return {status: 'error', execution_count, ename, evalue: evalue ?? '', traceback: []}
      }

      /** A picture or a page, by its kind; a whole page has a frame of its own. */
      bundle(path, data) {
        const kind = KINDS[path.split('.').at(-1)]
        if (kind === KINDS.png || kind === KINDS.jpg || kind === KINDS.gif) {
          return {[kind]: btoa(Array.from(data, byte => String.fromCharCode(byte)).join(''))}
        }
        const text = new TextDecoder().decode(data)
        if (kind === KINDS.svg) return {[kind]: text, 'text/plain': described(text)}
        if (!/^\s*<(!doctype|html)/i.test(text)) return {[kind]: text}
        const frame = document.createElement('iframe')
        frame.setAttribute('sandbox', 'allow-scripts')
        frame.setAttribute('srcdoc', text)
        frame.setAttribute('style', 'width: 100%; height: 34rem; border: 0')
        return {[kind]: frame.outerHTML}
      }

      async completeRequest({cursor_pos}) {
        return {status: 'ok', matches: [], cursor_start: cursor_pos, cursor_end: cursor_pos, metadata: {}}
      }

      inspectRequest = async () => ({status: 'ok', found: false, data: {}, metadata: {}})
      isCompleteRequest = async () => ({status: 'unknown'})
      commInfoRequest = async () => ({status: 'ok', comms: {}})
      inputReply() {}
      async commOpen() {}
      async commMsg() {}
      async commClose() {}
    }

    const spec = {name: 'tensorgrad', display_name: 'Python with tensorgrad', language: 'python', argv: [], resources: {}}
    const plugin = {
      id: 'tensorgrad:kernel', autoStart: true, requires: [IKernelSpecs],
      activate: (app, specs) => specs.register({spec, create: async options => new Kernel(options)}),
    }
    return () => ({__esModule: true, default: [plugin]})
  }

  window._JUPYTERLAB ??= {}
  window._JUPYTERLAB.tensorgrad = {init: modules => void (shared = modules), get: extension}
}
