// The page's style: light or dark as the reader's system is, one column or two as the window allows. Runs are told apart by the
// colours of Okabe and Ito, parts of a whole by Paul Tol's "bright" ones: both chosen for readers who are colour-blind.
#include "report/page/parts.h"

namespace moesaic {

std::string_view page_style() {
  return R"css(
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--text:#1b1f24;--soft:#5c6672;--line:#e3e6ea;--strong:#9aa3ad;
--run0:#0072b2;--run1:#d55e00;--run2:#009e73;--run3:#c2649c;--run4:#b97f00;--run5:#3aa0dc;--run6:#5b5b5b;
--bad:#c02434;--good:#1a7f4b;--mid:#eef0f2;--hot:#b3300f;--cold:#1f5fa8;--dead:#111418}
@media(prefers-color-scheme:dark){:root{--page:#14171b;--card:#1d2126;--text:#e6e9ec;--soft:#9aa5b1;--line:#31373e;--strong:#6b7580;
--run0:#5fb4ec;--run1:#ff8f4a;--run2:#35c99c;--run3:#e79bc8;--run4:#f0bc4e;--run5:#a4d8f8;--run6:#b9bec4;
--bad:#ff6b76;--good:#5fd08f;--mid:#2b3138;--hot:#ff7a4d;--cold:#5aa2f0;--dead:#f2f4f6}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:14px/1.45 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
header,main{max-width:1400px;margin:0 auto;padding:0 24px}
header{padding-top:22px}header p{margin:0;color:var(--soft);font-size:12px;letter-spacing:.06em;text-transform:uppercase}
h1{margin:0 0 16px;font-size:26px;line-height:1.2;overflow-wrap:anywhere}
h2{margin:30px 0 10px;font-size:16px}
p{margin:4px 0;color:var(--soft)}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(168px,1fr));gap:10px}
.cards div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:9px 13px;display:flex;flex-direction:column;min-width:0}
.cards span,.cards small{color:var(--soft);font-size:12px}
.cards b{font-size:18px;font-weight:600;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.warning{color:var(--bad)}
nav{position:sticky;top:0;z-index:2;display:flex;flex-wrap:wrap;gap:8px;align-items:center;margin:14px -24px 0;padding:8px 24px;background:var(--page);border-bottom:1px solid var(--line)}
nav label{margin-left:auto;display:flex;align-items:center;gap:8px;color:var(--soft);font-size:13px}
nav output{width:2.4em;font-variant-numeric:tabular-nums}
nav input{accent-color:var(--run0);width:140px}
button{font:inherit;font-size:13px;color:inherit;background:var(--card);border:1px solid var(--line);border-radius:99px;padding:3px 12px;cursor:pointer;overflow-wrap:anywhere}
button[aria-pressed=false]{opacity:.45;text-decoration:line-through}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(520px,100%),1fr));gap:14px}
.grid.one{grid-template-columns:1fr}
.stack{display:grid;gap:8px}
figure,details,.stack>.scroll{margin:0;min-width:0;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 16px}
figure.wide,figure:nth-child(odd):last-child,figure:nth-child(odd):has(+.wide){grid-column:1/-1}
figcaption{position:relative;display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 8px;min-height:22px}
.unit{color:var(--soft);font-size:12px}
figcaption label{color:var(--soft);font-size:12px;margin-left:8px}
figcaption output{position:absolute;z-index:1;right:0;top:0;max-width:100%;padding-left:14px;background:var(--card);text-align:right;font-size:12px;line-height:22px;font-variant-numeric:tabular-nums;color:var(--soft);pointer-events:none}
figcaption output b{color:var(--text);font-weight:600;margin-left:8px;white-space:nowrap}
figure p{font-size:12px}
select{font:inherit;color:inherit;background:var(--page);border:1px solid var(--line);border-radius:6px;padding:2px 4px;max-width:260px}
.plot{height:220px;margin:12px 10px 0 58px;position:relative}
.one>.chart:not(.timeline) .plot{height:300px}
.memory .plot{margin-bottom:8px}
.plot>svg{width:100%;height:100%;overflow:visible;display:block}
.nothing{height:120px;display:grid;place-items:center;color:var(--soft)}
line.grid{stroke:var(--line);stroke-width:1}
text{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}
.xt{text-anchor:middle}.yt{text-anchor:end}
.sum{fill:var(--text)}
path{fill:none;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.line{stroke-width:1.6}.thin{stroke-width:1;stroke-dasharray:4 3}.dots{stroke-width:6;stroke-linecap:round}
.line.faint{opacity:.28;stroke-width:1}
.again{stroke-dasharray:7 3}
path.r0{stroke:var(--run0)}path.r1{stroke:var(--run1)}path.r2{stroke:var(--run2)}path.r3{stroke:var(--run3)}path.r4{stroke:var(--run4)}path.r5{stroke:var(--run5)}path.r6{stroke:var(--run6)}
i.r0{background:var(--run0)}i.r1{background:var(--run1)}i.r2{background:var(--run2)}i.r3{background:var(--run3)}i.r4{background:var(--run4)}i.r5{background:var(--run5)}i.r6{background:var(--run6)}
.guide{stroke:var(--strong);stroke-width:1.2;stroke-dasharray:6 4}
text.skip{fill:var(--bad);text-anchor:middle;font-size:15px;font-weight:700}
line.restart{stroke:var(--strong);stroke-dasharray:2 3;stroke-width:1.5}line.repeat{stroke:var(--run4);stroke-dasharray:2 3;stroke-width:1.5}
line.cross{stroke:var(--strong);stroke-width:1;pointer-events:none}
.swatch{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}
.swatch.again{opacity:.6}
.x-name{display:flex;flex-wrap:wrap;gap:2px 14px;align-items:center;margin:26px 0 0 58px;color:var(--soft);font-size:12px}
.memory .x-name{margin-top:6px}
.key{display:inline-flex;align-items:center;gap:6px;white-space:nowrap}
.key i{display:inline-block;width:16px;height:0;border-top:2px solid var(--soft);font-style:normal}
.key i.dots{width:7px;height:7px;border:0;border-radius:50%;background:var(--soft)}
.key i.guide{border-top:2px dashed var(--strong)}
.key i.restart,.key i.repeat{width:0;height:12px;border:0;border-left:2px dotted var(--strong)}.key i.repeat{border-color:var(--run4)}
.key i.skip{width:auto;height:auto;border:0;color:var(--bad);font-weight:700}
.key i.fill{width:11px;height:11px;border:0;border-radius:3px}
.p0{fill:#4477aa;background:#4477aa}.p1{fill:#66ccee;background:#66ccee}.p2{fill:#228833;background:#228833}.p3{fill:#ccbb44;background:#ccbb44}
.p4{fill:#ee6677;background:#ee6677}.p5{fill:#aa3377;background:#aa3377}.p6{fill:#999;background:#999}
.ramp,.segments{display:inline-flex;flex-wrap:wrap;gap:2px 12px;margin-left:auto}
.cells path{stroke:none;shape-rendering:crispEdges}
.g0{fill:#4477aa;background:#4477aa}.g1{fill:#66ccee;background:#66ccee}.g2{fill:#228833;background:#228833}.g3{fill:#ccbb44;background:#ccbb44}.g4{fill:#aa3377;background:#aa3377}
.g5{fill:#ee6677;background:#ee6677}.g6{fill:#b5651d;background:#b5651d}.g7{fill:#7766cc;background:#7766cc}.g8{fill:#44aa99;background:#44aa99}.g9{fill:#888;background:#888}
.backward{opacity:.62}
.op{fill:#fff;font-size:11px;pointer-events:none}.op.light{fill:#14171b}
.drag{fill:var(--run0);opacity:.2}.hit{fill:none;stroke:var(--text);stroke-width:1.5;pointer-events:none}
.timeline .plot{cursor:crosshair;touch-action:pan-y;user-select:none}
.scroll{overflow-x:auto}.tall{max-height:420px;overflow-y:auto}
table{border-collapse:collapse;font-size:13px}
th{color:var(--soft);font-weight:500;text-align:left;white-space:nowrap}
th,td{padding:5px 14px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}
.tall th{position:sticky;top:0;background:var(--card)}
.numbers td{white-space:nowrap;font-variant-numeric:tabular-nums}
.scroll+p{margin-top:12px}
td small{display:block;color:var(--soft);font-size:11px}
.overview{background:var(--card)}main>.scroll{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:6px 16px}
.events td:last-child{overflow-wrap:anywhere;min-width:260px}.events td:not(:last-child){white-space:nowrap;font-variant-numeric:tabular-nums}
.badge{font-size:12px;border-radius:99px;padding:1px 9px;background:var(--mid)}
.badge.skip{color:#fff;background:#c02434}.badge.repeat{color:#14171b;background:#e9b949}.badge.restart{color:#fff;background:#2468a8}.badge.stop,.badge.start{color:#fff;background:#1a7f4b}
details>summary{cursor:pointer}details[open]>summary{margin-bottom:6px}
pre{margin:0;overflow-x:auto;font:12px/1.5 ui-monospace,"DejaVu Sans Mono",monospace}
code{font:12px ui-monospace,"DejaVu Sans Mono",monospace}
main{padding-bottom:48px}
@media print{nav{display:none}figure,details{break-inside:avoid}}
@media(max-width:560px){header,main{padding-left:12px;padding-right:12px}nav{margin:14px -12px 0;padding:8px 12px}.cards{grid-template-columns:repeat(auto-fill,minmax(130px,1fr))}}
)css";
}

}  // namespace moesaic
