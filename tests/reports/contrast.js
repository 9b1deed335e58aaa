// Texts of less than 4.5 : 1 against a plain background (WCAG 2.2 AA); gradients are skipped.
() => {
        const rgb = (c) => (c.match(/[\d.]+/g) || []).map(Number);
        const lum = ([r, g, b]) => [r, g, b].map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
        const back = (n) => { for (; n; n = n.parentElement) { const s = getComputedStyle(n); if (s.backgroundImage !== 'none') return null; const c = rgb(s.backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
        const bad = [];
        for (const n of document.querySelectorAll('main *')) {
          if (n.closest('svg, #chart') || ![...n.childNodes].some(c => c.nodeType === 3 && c.textContent.trim())) continue;
          const b = back(n); if (!b) continue;
          const [x, y] = [lum(rgb(getComputedStyle(n).color)), lum(b)], ratio = (Math.max(x, y) + .05) / (Math.min(x, y) + .05);
          if (ratio < 4.5) bad.push([n.tagName, n.className, n.textContent.slice(0, 40), ratio]);
        }
        return bad;
        }
