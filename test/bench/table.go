package bench

import (
	"fmt"
	"strings"
)

// row is one line of the table.
type row struct {
	what     string
	value    figure
	decimals int
	unit     string
	budget   float64 // the most that tinylet may have; 0: none is set
}

// rows are the rows of the table, in its order. The budgets are those of
// the joined arm64 board, on the emulator, with nothing else to do.
var rows = []row{
	{"agent's binary, stripped", binarySize, 1, "MB", 30},

	{"agent's anonymous memory, no pods", idleAnon, 1, "MB", 9},
	{"agent's anonymous memory, 10 pods", podsAnon, 1, "MB", 12},
	{"agent's RSS, no pods", idleRSS, 1, "MB", 30},
	{"agent's RSS, 10 pods", podsRSS, 1, "MB", 34},
	{"containerd's anonymous memory, no pods", idleContainerd, 1, "MB", 0},
	{"containerd's anonymous memory, 10 pods", podsContainerd, 1, "MB", 0},
	{"memory of the node for each pod (MemAvailable)", podMemory, 1, "MB", 0},
	{"MemAvailable, no pods", idleAvailable, 0, "MB", 0},
	{"MemAvailable, 10 pods", podsAvailable, 0, "MB", 0},

	{"idle CPU, no pods: agent", idleCPU(partNames[partAgent]), 1, "ms/s", 7},
	{"idle CPU, no pods: containerd", idleCPU(partNames[partContainerd]), 1, "ms/s", 0},
	{"idle CPU, no pods: kernel threads", idleCPU(partNames[partKernel]), 1, "ms/s", 0},
	{"idle CPU, no pods: other processes", idleCPU(partNames[partOther]), 1, "ms/s", 0},
	{"idle CPU, no pods: whole node", idleCPU(wholeNode), 1, "ms/s", 0},
	{"idle CPU, 10 pods: agent", podsCPU(partNames[partAgent]), 1, "ms/s", 0},
	{"idle CPU, 10 pods: containerd", podsCPU(partNames[partContainerd]), 1, "ms/s", 0},
	{"idle CPU, 10 pods: shims", podsCPU(partNames[partShims]), 1, "ms/s", 0},
	{"idle CPU, 10 pods: these three", podsCPU(runtimeParts), 1, "ms/s", 40},
	{"idle CPU, 10 pods: the pods' own processes", podsCPU(partNames[partPods]), 1, "ms/s", 0},
	{"idle CPU, 10 pods: kernel threads", podsCPU(partNames[partKernel]), 1, "ms/s", 0},
	{"idle CPU, 10 pods: other processes", podsCPU(partNames[partOther]), 1, "ms/s", 0},
	{"idle CPU, 10 pods: whole node", podsCPU(wholeNode), 1, "ms/s", 0},

	{"one pod, API create to Running", oneStart, 2, "s", 2.1},
	{"10 pods at once, create to Running: p50", tenStart, 1, "s", 9},
	{"10 pods at once, create to Running: last", lastStart, 1, "s", 0},
	{"one pod, API delete to gone", oneDelete, 2, "s", 1.5},
	{"10 pods at once, delete to gone: p50", tenDelete, 1, "s", 0},
	{"10 pods at once, delete to gone: last", lastDelete, 1, "s", 0},

	{"wire, no pods: to the board", wireIn, 2, "MB/h", 0},
	{"wire, no pods: from the board", wireOut, 2, "MB/h", 0},
	{"wire, no pods: both ways", wireBoth, 2, "MB/h", 0.5},
	{"written to flash, no pods", idleFlash, 0, "kB/h", 0},
	{"written to flash, 10 pods", podsFlash, 0, "kB/h", 240},
}

// results are the measurements of one run. Those of kubelet and tinylet make the
// ratio; the others are there for who wants to know what is whose.
type results struct {
	kubelet, tinylet measurements
	defaults         measurements // kubelet, containerd with its own defaults
	runtime          measurements // containerd driven by a bare client
}

// table renders the results in Markdown. A value over its budget is in bold.
func (r results) table() string {
	var b strings.Builder
	b.WriteString("| what | kubelet | tinylet | tinylet / kubelet | budget | kubelet, containerd's defaults | runtime alone |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|\n")
	for _, w := range rows {
		ours := w.print(r.tinylet)
		if v, ok := r.tinylet[w.value]; ok && w.over(v) {
			ours = "**" + ours + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", w.what,
			w.print(r.kubelet), ours, w.ratio(r), w.limit(), w.print(r.defaults), w.print(r.runtime))
	}
	return b.String()
}

// missed are the budgets that tinylet does not keep, or that were not
// measured.
func (r results) missed() []string {
	var out []string
	for _, w := range rows {
		v, ok := r.tinylet[w.value]
		switch {
		case w.budget == 0:
		case !ok:
			out = append(out, w.what+": not measured")
		case w.over(v):
			out = append(out, fmt.Sprintf("%s: %s, %s", w.what, w.print(r.tinylet), w.limit()))
		}
	}
	return out
}

// over reports whether a value is over the budget, also when the table's
// rounding hides it.
func (w row) over(v float64) bool { return w.budget != 0 && v > w.budget }

func (w row) print(f measurements) string {
	v, ok := f[w.value]
	if !ok {
		return "–"
	}
	return fmt.Sprintf("%.*f %s", w.decimals, v, w.unit)
}

func (w row) limit() string {
	if w.budget == 0 {
		return ""
	}
	return fmt.Sprintf("≤ %g %s", w.budget, w.unit)
}

// ratio is tinylet's value as a share of the kubelet's.
func (w row) ratio(r results) string {
	ours, ok := r.tinylet[w.value]
	stock, ok2 := r.kubelet[w.value]
	if !ok || !ok2 || stock <= 0 {
		return "–"
	}
	share := 100 * ours / stock
	if share < 10 {
		return fmt.Sprintf("%.1f %%", share)
	}
	return fmt.Sprintf("%.0f %%", share)
}
