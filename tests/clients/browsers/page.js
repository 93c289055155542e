// Reads a stream for as long as the page is open.
//
// path: of the stream, such as "/event-types/order.created/events".
// getTicket: asks the page's own server for a ticket.
// onBatch: is called with each batch that has events.
// Returns a function that ends it.
function readStream(path, getTicket, onBatch) {
  let source, cursors = {}, timer, ended = false;

  async function open() {
    try {
      const query = new URLSearchParams({batch_flush_timeout: "5", ticket: await getTicket(path)});
      const seen = Object.values(cursors);
      if (path.startsWith("/event-types/") && seen.length) query.set("cursors", JSON.stringify(seen));
      if (ended) return;
      source = new EventSource(`${path}?${query}`);
      source.onmessage = message => {
        const batch = JSON.parse(message.data);
        if (batch.events) onBatch(batch);
      };
      source.addEventListener("message", message => {
        // The id names all partitions that were read, with the last offset of each.
        for (const each of JSON.parse(message.lastEventId)) if (each.offset) cursors[each.partition] = each;
      });
      source.addEventListener("problem", problem => console.warn(problem.data));
      source.onerror = () => { if (source.readyState === EventSource.CLOSED) openLater(); };
    } catch (error) {
      openLater();
    }
  }

  function openLater() {
    if (!ended) timer = setTimeout(open, 2000);
  }

  open();
  return () => { ended = true; clearTimeout(timer); source?.close(); };
}
