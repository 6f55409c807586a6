/* Search for pages that are opened from a folder. Browsers start no web worker there, so that the
   script of a worker runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const scope = this.frame.contentWindow
      scope.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        this.onmessage?.(event)
      }
      scope.importScripts = (...names) => Promise.all(names.map(name => this.load(name)))
      this.loaded = this.load(address)
    }

    load(address) {
      const script = this.frame.contentDocument.createElement("script")
      script.src = address
      const loaded = new Promise((resolve, reject) => {
        script.onload = resolve
        script.onerror = () => reject(new Error(`${address} cannot be read`))
      })
      this.frame.contentDocument.body.append(script)
      return loaded
    }

    async postMessage(data) {
      await this.loaded
      const scope = this.frame.contentWindow
      scope.dispatchEvent(new scope.MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
