package bench

import (
	"errors"
	"fmt"
	"strings"
)

// Files of a full run, relative to this directory. The second and the third are
// derived from the first.
const (
	resultsFile = "RESULTS.md"

	chartFile  = "../../docs/images/comparison.svg"
	readmeFile = "../../README.md"
)

// summary has the rows of RESULTS.md that README.md shows, with their names there.
var summary = []struct{ row, name string }{
	{"agent's anonymous memory, 10 pods", "agent's anonymous memory, 10 pods"},
	{"idle CPU, 10 pods: agent", "agent's CPU when idle, 10 pods"},
	{"memory of the node for each pod (MemAvailable)", "memory of the node for each pod"},
	{"one pod, API create to Running", "one pod, API create to Running"},
	{"agent's binary, stripped", "binary, arm64, stripped"},
}

// comparison is one measurement of both agents, as RESULTS.md prints it.
type comparison struct{ name, kubelet, tinylet, ratio string }

// summarize returns the comparisons of summary from the text of RESULTS.md. It
// returns an error if a row is missing or has no ratio.
func summarize(results string) ([]comparison, error) {
	cells := map[string][]string{}
	for line := range strings.Lines(results) {
		if c := strings.Split(strings.TrimSpace(line), " | "); len(c) > 3 {
			cells[strings.TrimPrefix(c[0], "| ")] = c
		}
	}
	var all []comparison
	for _, s := range summary {
		c := cells[s.row]
		if c == nil || !strings.HasSuffix(c[3], " %") {
			return nil, fmt.Errorf("read results: row %q has no ratio", s.row)
		}
		all = append(all, comparison{s.name, c[1], strings.Trim(c[2], "*"), c[3]})
	}
	return all, nil
}

// readmeTable is the first line of the table in README.md, which ends with an empty line.
const readmeTable = "| | kubelet 1.36.3 | tinylet | ratio |\n|---|---:|---:|---:|\n"

// withTable returns the text of README.md with the comparisons in its table.
func withTable(readme string, all []comparison) (string, error) {
	before, rest, ok := strings.Cut(readme, readmeTable)
	_, after, ended := strings.Cut(rest, "\n\n")
	if !ok || !ended {
		return "", errors.New("update README.md: no table of comparisons")
	}
	var b strings.Builder
	b.WriteString(before + readmeTable)
	for _, c := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.name, c.kubelet, c.tinylet, c.ratio)
	}
	b.WriteString("\n" + after)
	return b.String(), nil
}

// Geometry of the chart in pixels: the first bar's top, the distance between bars,
// and the left edge and width of a bar of 100 %.
const (
	chartTop, chartStep  = 44, 52
	chartLeft, chartFull = 300, 360
)

const chartHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-16 -8 792 350" width="792" height="350" role="img" aria-labelledby="t d" font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif">
  <title id="t">tinylet compared with the kubelet</title>
  <desc id="d">Five measurements of tinylet in percent of the kubelet's: %s.</desc>
  <style>
    .back { fill: #ffffff; }
    .name { fill: #1f2328; font-size: 15px; }
    .value { fill: #59636e; font-size: 12px; }
    .percent { fill: #1f2328; font-size: 15px; font-weight: 600; }
    .axis { fill: #59636e; font-size: 12px; }
    .kubelet { fill: #d1d9e0; }
    .tinylet { fill: #0969da; }
    .line { stroke: #818b98; stroke-width: 1; stroke-dasharray: 3 3; }
    @media (prefers-color-scheme: dark) {
      .back { fill: #0d1117; }
      .name, .percent { fill: #f0f6fc; }
      .value, .axis { fill: #9198a1; }
      .kubelet { fill: #3d444d; }
      .tinylet { fill: #4493f8; }
      .line { stroke: #9198a1; }
    }
  </style>
  <rect class="back" x="-16" y="-8" width="792" height="350" rx="6"/>
  <text class="axis" x="300" y="22">0 %%</text>
  <text class="axis" x="660" y="22" text-anchor="middle">kubelet = 100 %%</text>
  <line class="line" x1="660" y1="30" x2="660" y2="300"/>
`

const chartFoot = `  <text class="axis" x="0" y="324">Simulated arm64 board, 2 CPUs, 512 MB, containerd 2.4.2 with crun 1.21. Lower is better. Source: test/bench/RESULTS.md</text>
</svg>
`

// chart renders the comparisons as an SVG image: a bar of 100 % for the kubelet, and
// tinylet's bar in front of it.
func chart(all []comparison) (string, error) {
	var bars strings.Builder
	var texts []string
	for i, c := range all {
		var percent float64
		if _, err := fmt.Sscanf(c.ratio, "%g %%", &percent); err != nil {
			return "", fmt.Errorf("read ratio of %q: %w", c.name, err)
		}
		texts = append(texts, c.name+" "+c.ratio)
		y := chartTop + i*chartStep
		fmt.Fprintf(&bars, "  <text class=\"name\" x=\"0\" y=\"%d\">%s</text>\n", y+13, strings.ToUpper(c.name[:1])+c.name[1:])
		fmt.Fprintf(&bars, "  <text class=\"value\" x=\"0\" y=\"%d\">%s, kubelet %s</text>\n", y+31, c.tinylet, c.kubelet)
		fmt.Fprintf(&bars, "  <rect class=\"kubelet\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"28\" rx=\"3\"/>\n", chartLeft, y, chartFull)
		fmt.Fprintf(&bars, "  <rect class=\"tinylet\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"28\" rx=\"3\"/>\n", chartLeft, y, min(percent, 125)/100*chartFull)
		fmt.Fprintf(&bars, "  <text class=\"percent\" x=\"%d\" y=\"%d\">%s</text>\n", chartLeft+chartFull+14, y+19, c.ratio)
	}
	return fmt.Sprintf(chartHead, strings.Join(texts, "; ")) + bars.String() + chartFoot, nil
}
