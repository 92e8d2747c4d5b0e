// The page's script: a cross-hair and read-out in step on all charts, smoothing, showing and hiding runs, and the two figures
// that show one of many (heat map, timeline). It reads numbers from the element "data" only and makes text nodes, never markup.
#include "report/page/parts.h"

namespace moesaic {

std::string_view page_script() {
  return R"js(
(() => {
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const all = (selector, at = document) => [...at.querySelectorAll(selector)];
const svg = (parent, name, attributes = {}, text = '') => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== '') element.textContent = text;
  parent.append(element);
  return element;
};
const html = (parent, name, text, className = '') => {
  const element = document.createElement(name);
  element.textContent = text;
  element.className = className;
  parent.append(element);
  return element;
};
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const percent = fraction => (100 * fraction).toFixed(3) + '%';
const short = value => value === null ? 'not finite' : Math.abs(value) >= 1e7 || (value !== 0 && Math.abs(value) < 1e-3)
  ? value.toPrecision(4).replace(/\.?0+(e|$)/, '$1') : String(+value.toPrecision(5));
const ticks = (low, high, wanted) => {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough * 0.999);
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) list.push(i * step);
  return list;
};
// A pointer's place in a plot, 0 to 1 in both directions.
const place = (plot, event) => {
  const box = plot.getBoundingClientRect();
  return [clamp((event.clientX - box.left) / box.width, 0, 1), clamp((event.clientY - box.top) / box.height, 0, 0.9999)];
};
const xTicks = (root, low, high, label, wanted = 6) => {
  for (const tick of ticks(low, high, wanted)) {
    const at = percent((tick - low) / (high - low));
    svg(root, 'line', {class: 'grid', x1: at, x2: at, y1: 0, y2: '100%'});
    svg(root, 'text', {class: 'xt', x: at, y: '100%', dy: 17}, label(tick));
  }
};

// Line charts.
const hidden = new Set();
const crosses = [];  // {xName, show(x or null)}
data.charts.forEach((chart, index) => {
  const figure = document.querySelector(`[data-chart="${index}"]`), plot = figure.querySelector('.plot');
  const root = plot.querySelector('svg'), output = figure.querySelector('output');
  const cross = svg(root, 'line', {class: 'cross', y1: 0, y2: '100%', visibility: 'hidden'});
  const [x0, x1] = chart.x, [y0, y1] = chart.y;
  const mapX = x => 1000 * (x - x0) / (x1 - x0);
  const mapY = y => 1000 * (1 - (chart.log ? Math.log(y / y0) / Math.log(y1 / y0) : (y - y0) / (y1 - y0)));
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle + 1; else high = middle;
    }
    return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
  };
  const kinds = new Set(chart.series.map(s => s.name)).size > 1;
  const show = x => {
    output.replaceChildren();
    cross.setAttribute('visibility', x === null || x < x0 || x > x1 ? 'hidden' : 'visible');
    if (x === null || x < x0 || x > x1) return;
    let exact = null;
    for (const s of chart.series) {
      if (hidden.has(s.run) || s.x.length === 0) continue;
      const i = nearest(s.x, x);
      if (!s.dots && (exact === null || Math.abs(s.x[i] - x) < Math.abs(exact - x))) exact = s.x[i];
      const b = document.createElement('b');
      if (data.runs.length > 1) html(b, 'i', '', `swatch r${s.run % 7}`);
      b.append((kinds ? s.name + ' ' : '') + short(s.y[i]));
      output.append(b);
    }
    const at = exact === null ? x : exact;
    output.prepend(`${chart.xName} ${short(at)}`);
    const where = percent((at - x0) / (x1 - x0));
    cross.setAttribute('x1', where);
    cross.setAttribute('x2', where);
  };
  crosses.push({xName: chart.xName, show});
  plot.addEventListener('pointermove', event => {
    const x = x0 + place(plot, event)[0] * (x1 - x0);
    for (const other of crosses) other.show(other.xName === chart.xName ? x : null);
  });
  plot.addEventListener('pointerleave', () => crosses.forEach(other => other.show(null)));
  chart.smooth = weight => {
    if (chart.exact) return;
    all('.smoothed', root).forEach(path => path.remove());
    chart.series.forEach((s, k) => {
      const path = root.querySelector(`path.line[data-series="${k}"]`);
      if (!path) return;
      const over = weight > 0 || Boolean(s.mx);  // a line over the faint one
      path.classList.toggle('faint', over);
      if (!over) return;
      const xs = s.mx || s.x, ys = s.my || s.y;
      let mean = 0, sum = 0, d = '', down = false;  // an exponential mean whose weights sum to one from its start
      xs.forEach((x, i) => {
        if (ys[i] === null) return;
        mean = mean * weight + ys[i] * (1 - weight);
        sum = sum * weight + 1 - weight;
        d += `${down ? 'L' : 'M'}${mapX(x).toFixed(1)} ${mapY(mean / sum).toFixed(1)}`;
        down = true;
      });
      const smooth = path.cloneNode();
      smooth.setAttribute('d', d);
      smooth.classList.remove('faint');
      smooth.classList.add('smoothed');
      path.after(smooth);
    });
    applyHidden();
  };
});
const applyHidden = () => all('[data-run]').forEach(element => {
  if (element.closest('details') !== element) element.style.display = hidden.has(+element.dataset.run) ? 'none' : '';
});
all('[data-toggle]').forEach(button => button.addEventListener('click', () => {
  const run = +button.dataset.toggle;
  if (!hidden.delete(run)) hidden.add(run);
  button.setAttribute('aria-pressed', String(!hidden.has(run)));
  applyHidden();
}));
const slider = document.getElementById('smoothing');
if (slider) slider.addEventListener('input', () => {
  slider.nextElementSibling.textContent = slider.value;
  data.charts.forEach(chart => chart.smooth(+slider.value));
});

// The heat map. A letter says load over mean: 'M' is 1, each letter a quarter of a power of two; '0' none, '.' no data.
const ratioOf = letter => 2 ** ((letter.charCodeAt(0) - 77) / 4);
const colourOf = letter => {
  if (letter === '0') return 'var(--dead)';
  const away = (letter.charCodeAt(0) - 77) / 12;
  return `color-mix(in oklab, var(${away < 0 ? '--cold' : '--hot'}) ${Math.round(100 * Math.abs(away) ** 0.7)}%, var(--mid))`;
};
const heat = document.querySelector('.heat');
if (heat) {
  const plot = heat.querySelector('.plot'), root = plot.querySelector('svg'), select = heat.querySelector('select');
  const output = heat.querySelector('output'), ramp = heat.querySelector('.ramp');
  for (const [letter, text] of [['0', 'none'], ['A', '1/8'], ['E', '1/4'], ['I', '1/2'], ['M', '1'], ['Q', '2'], ['U', '4'], ['Y', '8 or more']]) {
    const key = html(ramp, 'span', '', 'key');
    html(key, 'i', '', 'fill').style.background = colourOf(letter);
    key.append(text);
  }
  let map, rows, names;
  const draw = () => {
    const [m, layer] = select.value.split(':');
    map = data.maps[+m];
    const whole = layer === 'all';
    rows = whole ? map.all : map.experts[+layer];
    names = i => (whole ? 'layer ' : 'expert ') + i;
    plot.style.height = clamp(rows.length * 16, 128, 420) + 'px';
    root.replaceChildren();
    const columns = rows[0].length, steps = columns * map.width;
    const cells = svg(root, 'svg', {class: 'cells', viewBox: `0 0 ${columns} ${rows.length}`, preserveAspectRatio: 'none'});
    const paths = {};
    rows.forEach((row, r) => {
      for (let c = 0, end; c < columns; c = end) {
        for (end = c + 1; end < columns && row[end] === row[c];) ++end;
        if (row[c] !== '.') paths[row[c]] = (paths[row[c]] || '') + `M${c} ${r}h${end - c}v1h${c - end}z`;
      }
    });
    for (const [letter, d] of Object.entries(paths)) svg(cells, 'path', {d, style: `fill:${colourOf(letter)}`});
    const every = Math.ceil(rows.length / 12);
    for (let r = 0; r < rows.length; r += every)
      svg(root, 'text', {class: 'yt', x: 0, dx: -8, y: percent((r + 0.5) / rows.length), dy: 4}, names(r));
    for (const tick of ticks(map.first, map.first + steps, 8)) {
      const at = percent((tick - map.first) / steps);
      svg(root, 'line', {class: 'grid', x1: at, x2: at, y1: '100%', y2: '100%', transform: 'translate(0 5)'});
      svg(root, 'text', {class: 'xt', x: at, y: '100%', dy: 17}, short(tick));
    }
  };
  plot.addEventListener('pointermove', event => {
    const [x, y] = place(plot, event), row = Math.floor(y * rows.length);
    const column = Math.min(Math.floor(x * rows[0].length), rows[0].length - 1), letter = rows[row][column];
    const from = map.first + column * map.width, to = from + map.width - 1;
    output.textContent = `${names(row)}, step ${from}${to > from ? ' to ' + to : ''}: ` +
      (letter === '.' ? 'no data' : letter === '0' ? 'nothing' : `about ${ratioOf(letter).toFixed(2)} of the mean`);
  });
  plot.addEventListener('pointerleave', () => { output.textContent = ''; });
  select.addEventListener('change', draw);
  draw();
}

// The timeline. Times are whole tenths of a microsecond.
const figure = document.querySelector('.timeline');
if (figure) {
  const plot = figure.querySelector('.plot'), root = plot.querySelector('svg'), select = figure.querySelector('select');
  const output = figure.querySelector('output'), note = figure.querySelector('.note'), segments = figure.querySelector('.segments');
  let line, rank, from = 0, to = 1;
  // A part of the layer has one colour, lighter in the backward pass; what is none of these is grey.
  const parts = ['attention', 'dispatch', 'experts', 'combine', 'router', 'head', 'reduce', 'optimizer', 'gather'];
  const partOf = segment => segment.replace(/ backward$/, '');
  const colour = segment => 'g' + (parts.indexOf(partOf(segment)) + 10) % 10;
  const look = segment => colour(segment) + (segment === partOf(segment) ? '' : ' backward');
  const duration = tenths => tenths >= 1e7 ? short(tenths / 1e7) + ' s' : tenths >= 1e4 ? short(tenths / 1e4) + ' ms' : short(tenths / 10) + ' µs';
  const at = time => (time - from) / (to - from);
  const draw = () => {
    root.replaceChildren();
    const height = 1 / rank.streams.length, width = plot.clientWidth || 1000;
    xTicks(root, from, to, duration);
    const box = svg(root, 'svg', {class: 'cells', viewBox: '0 0 1000 1000', preserveAspectRatio: 'none'});
    const paths = line.segments.map(() => ''), texts = [];
    rank.streams.forEach(([begins, lengths, names, kinds], row) => {
      const top = 1000 * (row + 0.12) * height, tall = 760 * height;
      begins.forEach((begin, i) => {
        if (begin + lengths[i] < from || begin > to) return;
        const a = clamp(at(begin), 0, 1) * 1000, b = Math.max(clamp(at(begin + lengths[i]), 0, 1) * 1000, a + 0.15);
        const end = b - a > 3 ? b - 0.7 : b;  // a gap between neighbours of one colour
        paths[kinds[i]] += `M${a.toFixed(2)} ${top.toFixed(1)}H${end.toFixed(2)}v${tall.toFixed(1)}H${a.toFixed(2)}z`;
        const name = line.names[names[i]];
        if (texts.length < 400 && (b - a) * width / 1000 > name.length * 6.4 + 8) texts.push([a, row, name, kinds[i]]);
      });
      svg(root, 'text', {class: 'yt', x: 0, dx: -8, y: percent((row + 0.5) * height), dy: 4}, line.streams[row]);
    });
    paths.forEach((d, kind) => d && svg(box, 'path', {d, class: look(line.segments[kind])}));
    for (const [a, row, name, kind] of texts)
      svg(root, 'text', {class: /^g[13]/.test(colour(line.segments[kind])) ? 'op light' : 'op', x: percent(a / 1000), dx: 4, y: percent((row + 0.5) * height), dy: 4}, name);
  };
  const choose = () => {
    const [t, r] = select.value.split(':');
    line = data.timelines[+t];
    rank = line.ranks[+r];
    from = 0;
    to = Math.max(line.end, 1);
    plot.style.height = rank.streams.length * 40 + 'px';
    note.textContent = rank.leftOut > 0 ? `The ${rank.leftOut} shortest operations are left out.` : '';
    segments.replaceChildren();
    const used = line.segments.map(partOf);
    for (const name of [...parts.filter(part => used.includes(part)), 'other']) {
      const key = html(segments, 'span', '', 'key');
      html(key, 'i', '', 'fill ' + colour(name));
      key.append(name);
    }
    if (line.segments.some(segment => segment !== partOf(segment))) html(segments, 'span', 'lighter: backward');
    draw();
  };
  let start = null, drag = null;
  plot.addEventListener('pointerdown', event => { start = place(plot, event)[0]; });
  plot.addEventListener('pointermove', event => {
    const [x, y] = place(plot, event), row = Math.floor(y * rank.streams.length), time = from + x * (to - from);
    all('.hit', root).forEach(element => element.remove());
    if (start !== null) {
      drag = drag || svg(root, 'rect', {class: 'drag', y: 0, height: '100%'});
      drag.setAttribute('x', percent(Math.min(x, start)));
      drag.setAttribute('width', percent(Math.abs(x - start)));
      return;
    }
    const [begins, lengths, names, kinds] = rank.streams[row], slack = (to - from) / 2000;
    let best = -1;
    begins.forEach((begin, i) => {
      if (time >= begin - slack && time <= begin + lengths[i] + slack && (best < 0 || Math.abs(begin + lengths[i] / 2 - time) < Math.abs(begins[best] + lengths[best] / 2 - time))) best = i;
    });
    output.textContent = '';
    if (best < 0) return;
    html(output, 'b', line.names[names[best]]);
    output.append(` ${line.segments[kinds[best]]} · ${duration(lengths[best])} · at ${duration(begins[best])}`);
    const a = clamp(at(begins[best]), 0, 1), b = clamp(at(begins[best] + lengths[best]), 0, 1);
    svg(root, 'rect', {class: 'hit', x: percent(a), width: percent(b - a), y: percent((row + 0.12) / rank.streams.length), height: percent(0.76 / rank.streams.length)});
  });
  const release = event => {
    if (drag) {
      const x = place(plot, event)[0], low = Math.min(x, start), high = Math.max(x, start);
      const span = to - from;
      if (high - low > 0.004 && span * (high - low) > 5) [from, to] = [from + low * span, from + high * span];
      draw();
    }
    start = drag = null;
  };
  addEventListener('pointerup', event => { if (start !== null) release(event); });
  plot.addEventListener('dblclick', () => { [from, to] = [0, Math.max(line.end, 1)]; draw(); });
  plot.addEventListener('pointerleave', () => { output.textContent = ''; all('.hit', root).forEach(element => element.remove()); });
  select.addEventListener('change', choose);
  addEventListener('resize', draw);
  choose();
}
})();
)js";
}

}  // namespace moesaic
