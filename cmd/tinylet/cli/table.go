package cli

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// table aligns cells in columns, two spaces apart.
type table struct {
	rows [][]string
}

func (t *table) add(cells ...string) {
	for i := range cells {
		// A cell may begin with spaces, as an indented name does.
		lead := cells[i][:len(cells[i])-len(strings.TrimLeft(cells[i], " "))]
		cells[i] = lead + clean(cells[i][len(lead):])
	}
	t.rows = append(t.rows, cells)
}

func (t *table) write(to io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	w := bufio.NewWriter(to)
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		w.WriteString(strings.TrimRight(line.String(), " "))
		w.WriteByte('\n')
	}
	return w.Flush() // keeps the first error
}

// clockUnset is before any board with a set clock: times before it come from
// a board that had none yet.
var clockUnset = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// unknownAge stands for an age that the clock cannot tell.
const unknownAge = "?"

// age says how long ago something was, as kubectl writes it. A time to come
// means that the clock was set back since. A time from before the board's
// clock was set is taken for the boot, which it followed.
func age(then, now time.Time, uptime time.Duration) string {
	if then.IsZero() {
		return "-"
	}
	d := now.Sub(then)
	if then.Before(clockUnset) {
		if uptime == 0 {
			return unknownAge
		}
		d = min(d, uptime)
	}
	if d < -2*time.Second { // less is two clocks' rounding
		return unknownAge
	}
	return duration.HumanDuration(max(d, 0))
}

// ageThisBoot is age for what cannot have outlived a reboot, such as a
// process.
func ageThisBoot(then, now time.Time, uptime time.Duration) string {
	if uptime > 0 && !then.IsZero() && now.Sub(then) > uptime {
		then = now.Add(-uptime)
	}
	return age(then, now, uptime)
}

// memory writes bytes in the units of Kubernetes; 0 is not known.
func memory(bytes uint64) string {
	switch {
	case bytes == 0:
		return "-"
	case bytes < 1<<20:
		return fmt.Sprintf("%dKi", (bytes+1<<10-1)>>10)
	case bytes < 10<<20:
		return fmt.Sprintf("%.1fMi", float64(bytes)/(1<<20))
	case bytes < 10<<30:
		return fmt.Sprintf("%dMi", bytes>>20)
	}
	return fmt.Sprintf("%dGi", bytes>>30)
}
