'use strict';
// Updates the page, shows actions in a dialog, and draws the large charts. All links and forms work
// without it.
(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const live = $('#live'), status = $('#status'), dialog = $('#dialog');

  // Charts.
  const plots = new Map(); // by their element
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  function options(box, data) {
    const axis = { stroke: colour('dim'), grid: { stroke: colour('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    const series = [{}, { label: 'permits/s', stroke: colour('fill'), width: 1.5, fill: colour('fill') + '22', points: { show: false } },
      { label: 'denials/s', scale: 'denials', stroke: colour('bad'), width: 1, points: { show: false } }];
    if (data.allowed) series.push({ label: 'allowed/s', stroke: colour('dim'), width: 1, dash: [4, 4], points: { show: false } });
    const top = (_, least, most) => [0, Math.max(most * 1.1, 0.1)];
    return { width: box.clientWidth, height: 160, series, scales: { y: { range: top }, denials: { range: top } }, cursor: { y: false, drag: { x: false } }, legend: { live: true },
      axes: [{ ...axis, space: 70, values: (_, times) => times.map(t => new Date(t * 1000).toTimeString().slice(0, 5)) }, { ...axis, size: 44 },
        { ...axis, size: 44, scale: 'denials', side: 1, stroke: colour('bad'), grid: { show: false } }] };
  }
  const rows = ({ from, permits, denials, allowed }) => [permits.map((_, i) => from + 10 * i), permits, denials].concat(allowed ? [permits.map(() => allowed)] : []);
  function draw(box, rebuild) {
    if (!box.dataset.chart || !window.uPlot) return;
    const data = JSON.parse(box.dataset.chart);
    const old = plots.get(box);
    if (old && !rebuild) return old.setData(rows(data));
    if (old) old.destroy();
    plots.set(box, new uPlot(options(box, data), rows(data), box));
  }
  function drawAll(rebuild) {
    for (const [box, plot] of plots) if (!box.isConnected) { plot.destroy(); plots.delete(box); }
    document.querySelectorAll('.chart').forEach(box => draw(box, rebuild));
  }
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => drawAll(true));
  addEventListener('resize', () => { for (const [box, plot] of plots) plot.setSize({ width: box.clientWidth, height: 160 }); });

  // Show times in the viewer's zone, in the server's format.
  const two = n => String(n).padStart(2, '0');
  function local(within) {
    for (const time of within.querySelectorAll('time[datetime]')) {
      const at = new Date(time.dateTime), now = new Date();
      const clock = two(at.getHours()) + ':' + two(at.getMinutes());
      const day = at.toLocaleString('en-US', { month: 'short', day: 'numeric' });
      if (at.toDateString() === now.toDateString() || 'zone' in time.dataset) time.textContent = clock + ':' + two(at.getSeconds());
      else if (at.getFullYear() === now.getFullYear()) time.textContent = day + ' ' + clock;
      else time.textContent = at.getFullYear() + '-' + two(at.getMonth() + 1) + '-' + two(at.getDate()) + ' ' + clock;
      if ('zone' in time.dataset) time.textContent += ' ' + at.toLocaleTimeString('en-US', { timeZoneName: 'short' }).split(' ').pop();
    }
  }

  // Updates.
  let last = '', waiting = null;
  const selecting = () => { const s = getSelection(); return s && !s.isCollapsed && live.contains(s.anchorNode); };
  function morph(to, html) {
    const next = document.createElement('template');
    next.innerHTML = html;
    local(next.content);
    Idiomorph.morph(to, next.innerHTML, { morphStyle: 'innerHTML', ignoreActiveValue: true, callbacks: {
      beforeNodeMorphed: (from, next) => {
        if (from.classList && from.classList.contains('filter')) return false; // the user types in it
        if (!from.classList || !from.classList.contains('chart')) return true;
        if (from.dataset.chart !== next.dataset.chart) { from.dataset.chart = next.dataset.chart; draw(from); }
        return false;
      } } });
  }
  function show(html) {
    if (selecting()) { waiting = html; return; } // not while the user selects text
    waiting = null;
    if (html === last) return;
    last = html;
    morph(live, html);
    drawAll();
  }
  document.addEventListener('selectionchange', () => { if (waiting !== null && !selecting()) show(waiting); });

  // Fetch the page again, one request at a time, while it is visible.
  const refreshMillis = 2000;
  let next = null, asking = false;
  async function refresh() {
    clearTimeout(next);
    if (!live || asking || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch(location.href, { signal: AbortSignal.timeout(10000) });
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const now = $('#live', page);
      if (now && now.childElementCount) { show(now.innerHTML); morph(status, $('#status', page).innerHTML); }
      document.body.classList.toggle('old', !now);
    } catch { document.body.classList.add('old'); }
    asking = false;
    next = setTimeout(refresh, refreshMillis);
  }
  document.addEventListener('visibilitychange', refresh);
  addEventListener('pageshow', e => { if (e.persisted) refresh(); });

  // Show the page of an action in a dialog.
  let opener = null;
  function fill(html) {
    const page = new DOMParser().parseFromString(html, 'text/html');
    const ask = $('.ask', page);
    if (!ask) { location.reload(); return; }
    dialog.replaceChildren(document.adoptNode(ask));
    local(dialog);
    if (!dialog.open) dialog.showModal();
    ($('input:not([type=hidden])', dialog) || $('button', dialog) || dialog).focus();
  }
  document.addEventListener('click', async e => {
    if (e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || !(e.target instanceof Element)) return;
    if (e.target.closest('#dialog [data-close]')) { e.preventDefault(); dialog.close(); return; }
    const link = e.target.closest('a[data-dialog]');
    if (!link) return;
    e.preventDefault();
    opener = link;
    try { fill(await (await fetch(link.href)).text()); } catch { location = link.href; }
  });
  dialog.addEventListener('submit', async e => {
    e.preventDefault();
    const form = e.target, button = $('button', form);
    button.disabled = true;
    try {
      const answer = await fetch(form.getAttribute('action'), { method: 'POST', body: new URLSearchParams(new FormData(form)) });
      if (answer.ok) { dialog.close(); await answer.text(); refresh(); return; }
      fill(await answer.text());
    } catch {
      button.disabled = false;
      form.submit();
    }
  });
  dialog.addEventListener('close', () => { dialog.replaceChildren(); if (opener && opener.isConnected) opener.focus(); opener = null; });
  dialog.addEventListener('click', e => { if (e.target === dialog) dialog.close(); });

  // The key / goes to the search.
  document.addEventListener('keydown', e => {
    if (e.key !== '/' || e.ctrlKey || e.metaKey || e.altKey || dialog.open || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    const find = $('#find');
    if (find) { e.preventDefault(); find.focus(); find.select(); }
  });

  // On a phone the navigation is wider than the screen.
  const current = $('nav [aria-current]');
  if (current) current.scrollIntoView({ block: 'nearest', inline: 'nearest' });

  local(document);
  drawAll();
  next = setTimeout(refresh, refreshMillis);
})();
