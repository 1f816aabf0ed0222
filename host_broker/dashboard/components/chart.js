/**
 * Curves over time: a chart with axes (uPlot), and a sparkline.
 *
 * @module
 */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import uPlot from "../vendor/uplot.js";

const HEIGHT = 170;
const SHORTEST_S = 10; // from left to right
const SPARK_WIDTH = 84;
const SPARK_HEIGHT = 20;

/** @param {string} name of a variable of style.css @returns {string} */
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * A chart. `times` are seconds since 1970; of `series` each has a `name`, `values` (null: unknown)
 * and a `color`, the name of a variable; `spell` says a value.
 *
 * @param {{title: string, times: number[], theme: string,
 *   series: {name: string, color: string, values: (number | null)[]}[],
 *   spell: (value: number | null | undefined) => string}} props
 */
export function Chart({ title, times, series, spell, theme }) {
  const place = useRef(null);
  const plot = useRef(/** @type {any} */ (null));
  const data = [times, ...series.map((each) => each.values)];
  const system = useSystemColors();
  const names = series.map((each) => each.name).join("\n");

  useLayoutEffect(() => {
    const node = /** @type {any} */ (place.current);
    const axis = {
      stroke: color("--soft"),
      grid: { stroke: color("--grid"), width: 1 },
      ticks: { stroke: color("--grid"), width: 1 },
      font: "12px system-ui, sans-serif",
    };
    plot.current = new uPlot(
      {
        width: node.clientWidth || 300,
        height: HEIGHT,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, y: false },
        scales: {
          // Of moments that are one uPlot itself would make a day.
          x: { range: (self) => spanned(self.data[0][0], self.data[0].at(-1)) },
          y: { range: (_, low, high) => aroundZero(low ?? 0, high ?? 0) },
        },
        axes: [
          { ...axis, space: 70, values: "{HH}:{mm}:{ss}" },
          { ...axis, size: 62, values: (_, ticks) => ticks.map(spell) },
        ],
        series: [
          {},
          ...series.map((each) => ({
            label: each.name,
            stroke: color(each.color),
            width: 2,
            points: { show: false },
          })),
        ],
      },
      data,
      node,
    );
    const watch = new ResizeObserver(() => {
      if (node.clientWidth > 0) plot.current?.setSize({ width: node.clientWidth, height: HEIGHT });
    });
    watch.observe(node);
    return () => {
      watch.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [theme, system, names]);

  // Moments are only added at the end and leave at the beginning. Before the browser paints: one
  // frame, not two.
  useLayoutEffect(() => {
    plot.current?.setData(data);
  }, [times.length, times[0], times.at(-1)]);

  const last = series.map((each) => `${each.name}: ${spell(each.values.at(-1))}`).join(", ");
  return html`<figure class="chart">
    <figcaption>
      <h3>${title}</h3>
      <ul class="legend">
        ${series.map(
          (each) => html`<li key=${each.name}>
            <i class=${`swatch ${each.color.slice(2)}`}></i>${each.name}
            <b>${spell(each.values.at(-1))}</b>
          </li>`,
        )}
      </ul>
    </figcaption>
    <div ref=${place} role="img" aria-label=${`${title}, now ${last}`}></div>
  </figure>`;
}

/** @param {number | undefined} low @param {number | undefined} high @returns {[number, number]} s */
function spanned(low, high) {
  const end = high ?? Date.now() / 1000;
  return [Math.min(low ?? end, end - SHORTEST_S), end];
}

/** @param {number} low @param {number} high @returns {[number, number]} with zero and some room */
function aroundZero(low, high) {
  const [bottom, top] = [Math.min(0, low), Math.max(0, high)];
  return bottom === top ? [0, 1.1] : [bottom * 1.1, top * 1.1];
}

/** @returns {boolean} whether the system's colours are dark, now and when that changes */
function useSystemColors() {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark;
}

/** The last numbers of a topic, small. @param {{numbers: readonly number[] | null}} props */
export function Sparkline({ numbers }) {
  const points = useMemo(() => (numbers && numbers.length > 1 ? polyline(numbers) : ""), [numbers]);
  if (!points) {
    return html`<svg class="spark" width=${SPARK_WIDTH} height=${SPARK_HEIGHT} aria-hidden="true" />`;
  }
  return html`<svg class="spark" width=${SPARK_WIDTH} height=${SPARK_HEIGHT} aria-hidden="true">
    <polyline points=${points} />
  </svg>`;
}

/** @param {readonly number[]} numbers two or more @returns {string} what `polyline` needs */
function polyline(numbers) {
  let low = Infinity;
  let high = -Infinity;
  for (const each of numbers) {
    low = Math.min(low, each);
    high = Math.max(high, each);
  }
  const tall = high / 2 - low / 2; // halves: what is between may be too large for a number
  return numbers
    .map((each, index) => {
      const x = 1 + (index / (numbers.length - 1)) * (SPARK_WIDTH - 2);
      const y = tall === 0 ? SPARK_HEIGHT / 2 : SPARK_HEIGHT - 2 - ((each / 2 - low / 2) / tall) * (SPARK_HEIGHT - 4);
      return `${x.toFixed(1)},${y.toFixed(1)}`;
    })
    .join(" ");
}
