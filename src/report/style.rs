//! The style of the page: light or dark, depending on the reader's system, and simple enough to print.

/// The style sheet.
pub const CSS: &str = "\
:root{color-scheme:light dark;--ground:#fff;--panel:#f5f7f9;--line:#d9dfe5;--text:#17202a;--faint:#5b6875;
--good:#17703c;--good-soft:#dff3e6;--warn:#8a5a00;--warn-soft:#fdf0d0;--bad:#b3261e;--bad-soft:#fbe3e1;
--info:#1f5a99;--info-soft:#e2edf9;--write:#8aa4bd;--wait:#e0b84c;--flip:#1f6fb8;--retire:#7a4fb5;--back:#c2574b;
--outside:#6c9a7c;--s0:#e9edf1;--s1:#b9d3ee;--s2:#7fb0de;--s3:#3f83c4;--s4:#0b4f94;--s5:#fbe7a8}
@media (prefers-color-scheme:dark){:root{--ground:#12171d;--panel:#1b222a;--line:#343e49;--text:#e3e8ed;
--faint:#9aa7b4;--good:#74d69a;--good-soft:#173825;--warn:#f0c566;--warn-soft:#3d3011;--bad:#ff9b90;
--bad-soft:#4a1c19;--info:#8cc0f5;--info-soft:#17324d;--write:#5f7890;--wait:#c79d35;--flip:#4a9be0;--retire:#a57fdb;
--back:#d97468;--outside:#5c8a6c;--s0:#262f38;--s1:#24486b;--s2:#2f6799;--s3:#4b93d3;--s4:#a5d3ff;--s5:#57491d}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1244px;padding:28px 32px 64px;background:var(--ground);color:var(--text);
font:14px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
h1{font-size:25px;line-height:1.25;margin:2px 0 10px;overflow-wrap:anywhere}
h2{font-size:18px;margin:38px 0 12px;padding-top:16px;border-top:1px solid var(--line)}
h3{font-size:14px;margin:0 0 4px}
p{margin:0 0 10px}
code{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;overflow-wrap:anywhere}
small{font-size:.62em;font-weight:400;color:var(--faint)}
time{white-space:nowrap;font-variant-numeric:tabular-nums}
.faint,.kind{color:var(--faint)}
.kind{margin:0}
.verdict{font-size:15px;margin-bottom:18px}
.good{color:var(--good)}
.pill{display:inline-block;padding:1px 9px;border-radius:10px;font-size:12.5px;font-weight:600;white-space:nowrap}
.pill.good{background:var(--good-soft);color:var(--good)}
.pill.warn{background:var(--warn-soft);color:var(--warn)}
.pill.bad{background:var(--bad-soft);color:var(--bad)}
.pill.info{background:var(--info-soft);color:var(--info)}
.verdict .pill{font-size:14px;padding:3px 13px;border-radius:14px;margin-right:6px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,240px),1fr));gap:10px;margin:0 0 20px}
.tiles div{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 12px;display:flex;
flex-direction:column}
.tiles dd{margin:0;font-size:21px;font-weight:600;white-space:nowrap;font-variant-numeric:tabular-nums}
.tiles dt{color:var(--faint);font-size:12.5px;line-height:1.35}
.tiles .wrong{border-color:var(--bad)}
.tiles .wrong dd{color:var(--bad)}
.identity{display:grid;grid-template-columns:max-content 1fr;gap:3px 20px;margin:0}
.identity dt{color:var(--faint)}
.identity dd{margin:0}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;margin:0 0 12px}
th{text-align:left;font-weight:600;color:var(--faint);font-size:12.5px;white-space:nowrap}
th,td{padding:5px 14px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
td:last-child,th:last-child{padding-right:0}
.services code,.findings code{white-space:nowrap}
.services td:first-child{overflow-wrap:anywhere;min-width:180px;width:28%}
.services td:last-child{min-width:170px}
.services td:nth-child(4),.services td:nth-child(5),.tiers td,.outside td:first-child,.pauses td{white-space:nowrap}
.outside td:nth-child(3),.outside td:last-child{white-space:nowrap}
.pauses td:last-child{white-space:normal;width:50%}
.steps td:first-child{min-width:260px}
.state{white-space:nowrap}
.state::before{content:'';display:inline-block;width:9px;height:9px;border-radius:50%;margin-right:7px;
background:var(--line)}
.state.held::before{background:var(--flip)}
.state.retired::before{background:var(--good)}
.state.waiting::before{background:none;box-shadow:inset 0 0 0 2px var(--faint)}
details{margin:0 0 6px}
details details{margin-left:18px}
summary{cursor:pointer;padding:4px 0}
summary:hover{color:var(--info)}
details>.wide{padding:4px 0 10px 18px;content-visibility:auto;contain-intrinsic-size:auto 1200px}
svg{display:block}
.timeline{width:100%;min-width:900px;height:auto}
.timeline text{font-size:11.5px;fill:var(--faint)}
.timeline .label{text-anchor:end;fill:var(--text)}
.timeline .number{text-anchor:middle;font-weight:600;fill:var(--text)}
.timeline .tick{font-variant-numeric:tabular-nums}
.timeline .axis{stroke:var(--line)}.timeline .share{fill:none;stroke:var(--info);stroke-width:2}.timeline .seen{fill:var(--good)}
.timeline .tier{font-weight:600}.band{fill:var(--panel)}rect.tier{fill:var(--info)}
.write{fill:var(--write)}.wait{fill:var(--wait)}.flip{fill:var(--flip)}.retire{fill:var(--retire)}
.back{fill:var(--back)}.others{fill:var(--outside)}
.pause{fill:var(--panel);stroke:var(--line);stroke-dasharray:3 3}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 20px;margin:8px 0 14px;padding:0;color:var(--faint);
font-size:12.5px}
.legend li{display:flex;align-items:center;gap:7px}
.legend svg{width:12px;height:12px}
.ranges{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:20px 36px}
.range{width:100%;height:auto;margin-bottom:14px}
.range text{font:8.6px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;text-anchor:end;fill:var(--faint)}
.s0{fill:var(--s0)}.s1{fill:var(--s1)}.s2{fill:var(--s2)}.s3{fill:var(--s3)}.s4{fill:var(--s4)}.s5{fill:var(--s5)}
footer{margin-top:40px;color:var(--faint);font-size:12.5px}
@media print{body{max-width:none;padding:0;font-size:11px}h2{break-after:avoid}tr{break-inside:avoid}}
";
