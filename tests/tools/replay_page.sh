#!/usr/bin/env bash
# replay_page.sh KNET: the page of `knet replay --html` in headless Chromium, at two widths: plays, zoom, keys and blocks. Without
# Chromium it is skipped.
set -euo pipefail
export LC_ALL=C.UTF-8
knet=$1
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KNET_TIMER AUTOGRAD_TIMER KNET_ALLOC
cd "$work"
{ # 10,000 blocks: more than a page draws for eight policies; a file's name that would end a script
  echo Thread,Time,Action,Pointer,Size,Stream
  for i in $(seq 1 10000); do
    echo "1,00:00:00:000000,allocate,0x${i}00,$((1 + i * 7919 % 4000000)),0x0"
    [ "$i" -le 50 ] || echo "1,00:00:00:000000,free,0x$((i - 50))00,$((1 + (i - 50) * 7919 % 4000000)),0x0"
  done
} >'<!--<script>.csv'
"$knet" replay --repeats 1 --policy all --html page.html '<!--<script>.csv' >/dev/null
[ "$(wc -c <page.html)" -le 1048576 ] || { echo "the page has more than 1 MiB"; exit 1; }
[ "$(wc -c <page.html)" -ge 500000 ] || { echo "the page draws less than it could"; exit 1; }
# Nothing is loaded from elsewhere.
! grep -E '(src|href)=|url\(|@import|https?://' page.html || { echo "the page refers to others"; exit 1; }

cat >test.js <<'END'
<script>
const bad = [], $ = s => document.querySelector(s), $$ = s => [...document.querySelectorAll(s)];
const check = (what, ok) => { if (!ok) bad.push(what); };
const key = (target, name) => target.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true, cancelable: true}));
const map = $('#map'), box = () => map.getBoundingClientRect();
const pointer = (name, x, y) => map.dispatchEvent(new PointerEvent(name, {clientX: box().left + x * box().width, clientY: box().top + y * box().height, bubbles: true}));
const painted = () => { const d = map.getContext('2d').getImageData(0, 0, map.width, map.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n / (map.width * map.height); };
const selected = () => $$('#plays tbody tr').findIndex(tr => tr.getAttribute('aria-selected') === 'true');
onerror = message => { bad.push(message); };
check('title', $('h1').textContent.includes('<' + '!--<' + 'script>.csv'));
check('plays', $$('#plays tbody tr').length === 8 && $$('#play option').length === 8 && selected() === 0);
check('row', $$('#plays tbody tr')[0].cells[0].textContent === 'arena' && / [KMG]iB/.test($$('#plays tbody tr')[0].cells[1].textContent));
check('blocks', painted() > 0.1);
check('not drawn', /^10000 blocks, \d+ small/.test($('#about').textContent));
check('whole', $('#out').disabled);
const before = map.toDataURL();
pointer('pointerdown', 0.4, 0.4); pointer('pointermove', 0.5, 0.5); pointer('pointerup', 0.6, 0.6);
check('zoom', !$('#out').disabled && map.toDataURL() !== before);
const zoomed = map.toDataURL();
key(map, 'ArrowRight');
check('moved', map.toDataURL() !== zoomed);
key(map, '-'); key(map, '-'); key(map, '-'); key(map, '-');
check('zoom out by key', $('#out').disabled);
key(map, '+');
check('zoom by key', !$('#out').disabled);
key(document.body, 'Escape');
check('escape', $('#out').disabled && map.toDataURL() === before);
let found = '';
for (let x = 0.02; x < 1; x += 0.02) for (let y = 0.02; y < 1 && !/0x/.test(found); y += 0.02) { pointer('pointermove', x, y); found = $('#hint').textContent; }
check('hint', /^0x[0-9a-f]{9,}, .*B, events \d+ to \d+$/.test(found));
$$('#plays tbody tr')[6].click();
check('play by row', selected() === 6 && $('#play').value === '6' && map.toDataURL() !== before);
$('#play').value = '0'; $('#play').onchange();
check('play by name', selected() === 0);
check('time', [...$('#time').getContext('2d').getImageData(0, 0, $('#time').width, $('#time').height).data].some(v => v > 0));
check('width', document.documentElement.scrollWidth <= innerWidth);
document.body.replaceChildren(bad.length ? 'FAILED: ' + bad.join('; ') : 'PASSED ' + innerWidth);
</script>
END
cat page.html test.js >tested.html
for width in 1280 500; do # 500 is the least that Chromium has
  "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/home" \
    --window-size="$width,900" --virtual-time-budget=5000 --dump-dom "file://$work/tested.html" >dom 2>log || { cat log; exit 1; }
  grep -q 'PASSED [0-9]' dom || { grep -o 'FAILED.*' dom || tail -n 5 dom; echo "$width pixels"; exit 1; }
done
