#!/usr/bin/env bash
# page.sh KNET: the HTML page of a profile in headless Chromium, at two widths: clicks, search, zoom, sorting and keys. Without
# Chromium it is skipped.
set -euo pipefail
export LC_ALL=C.UTF-8
knet=$1
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KNET_TIMER AUTOGRAD_TIMER
cd "$work"
KNET_TIMER=json=a.json,events,html=a.html,out=/dev/null "$knet" train mlp --synthetic --epochs 1 --threads 1 --quiet >/dev/null
"$knet" report a.json --format html >again.html
[ "$(wc -c <a.html)" -le 1048576 ] || { echo "the page has more than 1 MiB"; exit 1; }
KNET_TIMER=html=alone.html,out=/dev/null "$knet" train mlp --synthetic --epochs 1 --threads 1 --quiet >/dev/null
KNET_TIMER=html=none.html,notimeline,out=/dev/null "$knet" train mlp --synthetic --epochs 1 --threads 1 --quiet >/dev/null
for page in a again alone; do
  grep -q '"timeline":{' $page.html || { echo "no timeline in $page.html"; exit 1; }
done
! grep -q '"timeline":{' none.html || { echo "a timeline that was not wanted"; exit 1; }
# Nothing is loaded from elsewhere.
! grep -E '(src|href)=|url\(|@import|https?://' a.html | grep -v 'www.w3.org/2000/svg' || { echo "the page refers to others"; exit 1; }

cat >test.js <<'END'
<script>
const T = JSON.parse(document.getElementById('data').textContent).timeline;
const bad = [], $ = s => document.querySelector(s), $$ = s => [...document.querySelectorAll(s)];
const check = (what, ok) => { if (!ok) bad.push(what); };
const key = (target, name) => target.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true, cancelable: true}));
const labels = () => $$('#tree tbody tr').map(tr => tr.cells[0].textContent.trim().replace(/^[▸▾]\s*/, ''));
const row = name => $$('#tree tbody tr')[labels().indexOf(name)];
const flames = () => $$('#flame button').map(b => b.textContent);
onerror = message => { bad.push(message); };
check('rows', labels().includes('forward') && labels().includes('backward') && !labels().includes('fc1'));
check('command', $('#title').textContent.includes('train mlp'));
row('forward').querySelector('.toggle').click();
check('open', labels().includes('fc1') && row('forward').querySelector('.toggle').getAttribute('aria-expanded') === 'true');
key(row('forward').querySelector('.toggle'), 'ArrowLeft');
check('closed by key', !labels().includes('fc1'));
key(row('forward').querySelector('.toggle'), 'ArrowRight');
check('open by key', labels().includes('fc1'));
const order = labels().filter(l => l === 'forward' || l === 'update');
$('[data-sort=time]').click();
check('sorted', labels().filter(l => l === 'forward' || l === 'update').join() === order.reverse().join());
$('[data-sort=label]').click();
const top_ = $$('#tree tbody tr').filter(tr => tr.cells[0].style.paddingLeft === '4px').map(tr => tr.cells[0].title);
check('by name', top_.join() === top_.slice().sort((a, b) => a.localeCompare(b)).join());
$('[data-sort=time]').click();
const search = $('#search');
key(document.body, '/');
check('slash', document.activeElement === search);
search.value = 'LINEAR'; search.dispatchEvent(new Event('input'));
check('found', $$('#tree tr.hit').length > 2 && labels().includes('forward') && !labels().includes('update') && /^\d+ rows$/.test($('#found').textContent));
check('flames found', $$('#flame .hit').length > 0);
key(search, 'Escape');
check('search ends', search.value === '' && labels().includes('update'));
const n = flames().length, backward = $$('#flame button').find(b => b.textContent === 'backward');
backward.click();
check('zoom', flames()[0] === 'backward' && !flames().includes('forward') && $('#flame button').style.width === '100%');
$('#flame button').onfocus();
check('hint', /^backward at \w+\.c:\d+: 100 calls/.test($('#hint').textContent));
check('place', $('#flame button').title === $('#hint').textContent.split(': ')[0]);
key(document.body, 'Escape');
check('zoom out', flames().length === n && $('#out').disabled);
$('#weight').value = 'alloc'; $('#weight').onchange();
check('bytes', flames().includes('forward'));
check('no GPU', !$('#weight [value=gpu]'));
check('memory', $('#mark') && $('#memory table').rows.length > 0);
if (T) {
  const canvas = $('#lanes'), box = canvas.getBoundingClientRect(), whole = $('#range').textContent;
  check('lanes', !$('#timeline').hidden && /^Timeline of \d+ lanes: .+ \d+/.test(canvas.getAttribute('aria-label')) && box.height > 40);
  const point = (type, x, y) => canvas.dispatchEvent(new PointerEvent(type, {clientX: box.left + x, clientY: box.top + y, bubbles: true}));
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  check('blocks drawn', pixels.some((v, i) => i % 4 === 3 && v === 255));
  let block = 0;
  for (let x = 1; x < box.width && !block; x++) { point('pointermove', x, 40); if ($('#moment').textContent.includes(': ')) block = x; }
  check('block said', block && /: .+, [\d.]+ (ns|µs|ms|s), /.test($('#moment').textContent));
  point('pointerdown', block, 40); point('click', block, 40);
  const said_ = $('#moment').textContent;
  point('pointermove', block, 2);
  check('block chosen', $('#moment').textContent === said_);
  key(canvas, '+'); key(canvas, '+');
  check('zoomed in', $('#range').textContent !== whole);
  const at_ = $('#range').textContent;
  key(canvas, 'ArrowRight');
  check('later', $('#range').textContent !== at_);
  $('#whole').click();
  check('all of it', $('#range').textContent === whole && whole.includes('from the start'));
} else check('no timeline', $('#timeline').hidden);
check('width', document.documentElement.scrollWidth <= innerWidth);
check('columns', ($('#tree td.more') === null) === false && (getComputedStyle($('#tree td.more')).display === 'none') === innerWidth <= 700);
document.body.replaceChildren(bad.length ? 'FAILED: ' + bad.join('; ') : 'PASSED ' + innerWidth);
</script>
END
for page in alone.html again.html none.html; do
  for width in 1280 500; do # 500 is the least that Chromium has
    cat "$page" test.js >tested.html
    "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/home" \
      --window-size="$width,900" --virtual-time-budget=5000 --dump-dom "file://$work/tested.html" >dom 2>log || { cat log; exit 1; }
    grep -q 'PASSED [0-9]' dom || { grep -o 'FAILED.*' dom || tail -n 5 dom; echo "$page, $width pixels"; exit 1; }
  done
done

# Lanes of GPU streams beside those of threads.
cat >gpu.json <<'END'
{"traceEvents":[
{"ph":"X","name":"step","pid":1,"tid":1,"ts":100,"dur":400},
{"ph":"X","name":"sgemm","cat":"kernel","pid":0,"tid":7,"ts":150,"dur":300,"args":{"device":0,"stream":7,"correlation":1}},
{"ph":"X","name":"Memcpy HtoD","cat":"gpu_memcpy","pid":0,"tid":8,"ts":120,"dur":30,"args":{"device":0,"stream":8,"correlation":2}}
]}
END
"$knet" report gpu.json --format html >gpu.html
cat >lanes.js <<'END'
<script>
const said = document.getElementById('lanes').getAttribute('aria-label');
document.body.replaceChildren(said.includes('3 lanes: thread 1, GPU 0, stream 7, GPU 0, stream 8') ? 'PASSED' : 'FAILED: ' + said);
</script>
END
cat gpu.html lanes.js >tested.html
"$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/home" \
  --virtual-time-budget=5000 --dump-dom "file://$work/tested.html" >dom 2>log || { cat log; exit 1; }
grep -q 'PASSED' dom || { grep -o 'FAILED.*' dom || tail -n 5 dom; exit 1; }

# Counters: a table, and lines in the timeline.
cat >counters.json <<'END'
{"knetEventsSkipped":0,"traceEvents":[
{"ph":"X","name":"step","pid":1,"tid":1,"ts":100,"dur":400},
{"ph":"C","cat":"counter","name":"power <b>","pid":1,"ts":100,"args":{"W":-1e308}},
{"ph":"C","cat":"counter","name":"power <b>","pid":1,"ts":300,"args":{"W":1e308}},
{"ph":"C","cat":"counter","name":"power <b>","pid":1,"ts":400,"args":{"W":0.25}},
{"ph":"C","cat":"counter","name":"once","pid":1,"ts":250,"args":{"value":1234567}}
]}
END
"$knet" report counters.json --format html >counters.html
cat >counters.js <<'END'
<script>
const bad = [], check = (what, ok) => { if (!ok) bad.push(what); };
onerror = message => { bad.push(message); };
const cells = [...document.querySelectorAll('#counters tr')].map(tr => [...tr.cells].map(c => c.textContent).join('|'));
check('table: ' + cells, cells.join('\n') === 'Counter|unit|samples|min|mean|max|last\npower <b>|W|3|-1e+308|0.0833333|1e+308|0.25\nonce||1|1.23457e+6|1.23457e+6|1.23457e+6|1.23457e+6'.replaceAll('1.23457e+6', '1234570'));
const canvas = document.getElementById('lanes'), label = canvas.getAttribute('aria-label'), box = canvas.getBoundingClientRect();
check('lanes: ' + label, label.includes('3 lanes: thread 1, power <b> (W), once.'));
const said = (part, y) => { canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width * part, clientY: box.top + y, bubbles: true})); return document.getElementById('moment').textContent; };
const top_ = 18 + 16 + 15 + 4, line = top_ + 16 + 15; // below the axis and the thread's lane, in the counter's
check('first: ' + said(0.25, line), said(0.25, line) === 'power <b> (W): -1e+308, at the start');
check('middle: ' + said(0.6, line), said(0.6, line) === 'power <b> (W): 1e+308, from 200 µs');
check('last: ' + said(0.9, line), said(0.9, line) === 'power <b> (W): 0.25, from 300 µs');
check('no value yet', said(0.1, line + 50) === '\u00a0' && said(0.9, line + 50).startsWith('once: '));
const c = canvas.getContext('2d'), scale = canvas.width / box.width, inked = (part, y) => {
  const d = c.getImageData(Math.round(box.width * part * scale), Math.round((y - 2) * scale), 1, Math.round(5 * scale)).data;
  return d.some((v, i) => i % 4 === 3 && v > 0);
};
const low = top_ + 16 + 2 + 26, high = top_ + 16 + 2;
check('drawn low', inked(0.23, low) && !inked(0.23, high));
check('drawn high', inked(0.62, high) && !inked(0.62, low));
check('width', document.documentElement.scrollWidth <= innerWidth);
document.body.replaceChildren(bad.length ? 'FAILED: ' + bad.join('; ') : 'PASSED');
</script>
END
cat counters.html counters.js >tested.html
for width in 1280 500; do
  "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/home" \
    --window-size="$width,900" --virtual-time-budget=5000 --dump-dom "file://$work/tested.html" >dom 2>log || { cat log; exit 1; }
  grep -q 'PASSED' dom || { grep -o 'FAILED.*' dom || tail -n 5 dom; echo "counters, $width pixels"; exit 1; }
done
