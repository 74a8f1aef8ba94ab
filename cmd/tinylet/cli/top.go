package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/wait"
)

// Sort orders of top.
const (
	byCPU    = "cpu"
	byMemory = "memory"
	byName   = "name"
)

type topFlags struct {
	socket     *string
	form       *output
	sort       string
	interval   time.Duration
	containers bool
	once       bool
}

// minInterval is the minimum interval over which CPU usage is computed.
const minInterval = time.Second

func (s *system) top() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Show the CPU and memory usage of the node and its pods",
		Long: "Show the CPU and memory usage of the node and its pods, and update it every\n" +
			"--interval. The keys c, m and n sort by CPU, memory and name; q and Ctrl-C quit.\n" +
			"If the output is not a terminal, or with --once, print one table.\n\n" +
			"CPU is in millicores, averaged since the previous request to the agent. MEMORY is\n" +
			"the working set, and % its share of the node's memory. The agent measures only on\n" +
			"request.",
		Example: `  # Show the usage, sorted by memory.
  tinylet top --sort memory

  # Print one table with the containers of each pod.
  tinylet top --once --containers

  # Print the name of the pod that uses most memory, for a script.
  tinylet top -o json | jq -r '.pods | max_by(.memoryBytes).name'`,
		Args: cobra.NoArgs,
	}
	f := topFlags{socket: addSocket(cmd), form: addOutput(cmd)}
	cmd.Flags().StringVar(&f.sort, "sort", byCPU, "sort `order` of the pods: cpu, memory or name")
	cmd.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "`duration` between two updates, 1s or longer")
	cmd.Flags().BoolVarP(&f.containers, "containers", "c", false, "show the containers of each pod")
	cmd.Flags().BoolVar(&f.once, "once", false, "print one table")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.validate(); err != nil {
			return err
		}
		client := local.NewClient(*f.socket)
		if screen := newScreen(cmd.InOrStdin(), cmd.OutOrStdout()); screen != nil && !f.once && *f.form != outputJSON {
			return watchTop(cmd.Context(), client, &f, screen)
		}
		u, err := usage(cmd.Context(), client)
		if err != nil {
			return err
		}
		sortUsage(u, f.sort)
		return f.form.print(cmd.OutOrStdout(), u, func(w io.Writer) error { return writeTop(w, u, f.containers) })
	}
	return command(cmd)
}

func (f *topFlags) validate() error {
	if orders := []string{byCPU, byMemory, byName}; !slices.Contains(orders, f.sort) {
		return fmt.Errorf("--sort is %q: it must be one of %s", f.sort, strings.Join(orders, ", "))
	}
	if f.interval < minInterval {
		return fmt.Errorf("--interval is %v: it must be %v or longer", f.interval, minInterval)
	}
	return nil
}

// usage requests the usage, and again after a little more than minInterval if it has no
// CPU usage: the agent computes that from two requests. It blocks until then or until ctx
// ends.
func usage(ctx context.Context, client *local.Client) (*local.Usage, error) {
	u, err := client.Usage(ctx)
	if err != nil || u.Node.CPUNanoCores != nil {
		return u, err
	}
	if !wait.Pause(ctx, minInterval+minInterval/10) {
		return nil, context.Cause(ctx)
	}
	return client.Usage(ctx)
}

// watchTop shows the usage until the user presses q or ctx ends.
func watchTop(ctx context.Context, client *local.Client, f *topFlags, screen *screen) (err error) {
	if err := screen.open(); err != nil {
		return fmt.Errorf("set up terminal: %w; use --once, which needs none", err)
	}
	defer func() { err = errors.Join(err, screen.close()) }()
	orders := map[byte]string{'c': byCPU, 'C': byCPU, 'm': byMemory, 'M': byMemory, 'n': byName, 'N': byName}
	wait := minInterval // until the CPU usage is known
	for {
		u, err := client.Usage(ctx)
		if err != nil {
			return err
		}
		for due := time.Now().Add(wait); ; {
			sortUsage(u, f.sort)
			if err := screen.draw(func(w io.Writer) error { return writeTop(w, u, f.containers) }); err != nil {
				return err
			}
			key, err := screen.readKey(ctx, time.Until(due))
			if err != nil {
				return err
			}
			if key == 'q' || key == 'Q' {
				return nil
			}
			if key == 0 {
				break
			}
			f.sort = cmp.Or(orders[key], f.sort)
		}
		wait = f.interval
	}
}

// sortUsage sorts pods and their containers by usage, the highest first, or by name.
func sortUsage(u *local.Usage, order string) {
	compare := func(cpuA, cpuB *uint64, memoryA, memoryB uint64) int {
		switch order {
		case byCPU:
			return cmp.Or(cmp.Compare(used(cpuB), used(cpuA)), cmp.Compare(memoryB, memoryA))
		case byMemory:
			return cmp.Compare(memoryB, memoryA)
		}
		return 0
	}
	slices.SortStableFunc(u.Pods, func(a, b local.PodUsage) int {
		return cmp.Or(compare(a.CPUNanoCores, b.CPUNanoCores, a.MemoryBytes, b.MemoryBytes),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range u.Pods {
		slices.SortStableFunc(u.Pods[i].Containers, func(a, b local.ContainerUsage) int {
			return cmp.Or(compare(a.CPUNanoCores, b.CPUNanoCores, a.MemoryBytes, b.MemoryBytes), cmp.Compare(a.Name, b.Name))
		})
	}
}

// used returns the usage, or -1 if it is unknown, so that it sorts last.
func used(cpu *uint64) int64 {
	if cpu == nil {
		return -1
	}
	return int64(min(*cpu, 1<<62))
}

func writeTop(w io.Writer, u *local.Usage, containers bool) error {
	if err := nodeTable(u).write(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%s\n\n", nodeLine(&u.Node)); err != nil {
		return err
	}
	if len(u.Pods) == 0 {
		_, err := fmt.Fprintln(w, "no pods")
		return err
	}
	return podsTable(u, containers).write(w)
}

// nodeTable returns the usage of the node, of the QoS classes, of the agent and of the
// runtime.
func nodeTable(u *local.Usage) *table {
	var t table
	t.add("GROUP", "CPU", "%", "MEMORY", "%")
	n := &u.Node
	row := func(name string, cpu *uint64, bytes uint64) {
		t.add(name, millicores(cpu), percent(used(cpu), int64(n.Cores)*1e9), memory(bytes), share(bytes, n.MemoryCapacityBytes))
	}
	row("node "+n.Name, n.CPUNanoCores, n.MemoryBytes)
	for _, c := range u.Classes {
		row("  "+c.Name, c.CPUNanoCores, c.MemoryBytes)
	}
	if g := u.Agent; g != nil {
		row("  "+g.Name, g.CPUNanoCores, g.MemoryBytes)
	}
	return &t
}

// nodeLine returns the capacity, the available memory and the pressure of the node.
func nodeLine(n *local.NodeUsage) string {
	cores := "cores"
	if n.Cores == 1 {
		cores = "core"
	}
	text := fmt.Sprintf("%d %s; %s of %s memory available", n.Cores, cores, memory(n.MemoryAvailableBytes), memory(n.MemoryCapacityBytes))
	if p := n.Pressure; p != nil {
		text += fmt.Sprintf("; pressure: CPU %.1f%%, memory %.1f%%, I/O %.1f%%", p.CPU, p.Memory, p.IO)
	}
	return text
}

func podsTable(u *local.Usage, containers bool) *table {
	var t table
	t.add("NAMESPACE", "NAME", "CPU", "MEMORY", "%", "RESTARTS", "STATUS")
	row := func(namespace, name string, cpu *uint64, bytes uint64, restarts int, status string) {
		t.add(namespace, name, millicores(cpu), memory(bytes), share(bytes, u.Node.MemoryCapacityBytes), fmt.Sprint(restarts), status)
	}
	for i := range u.Pods {
		p := &u.Pods[i]
		row(p.Namespace, p.Name, p.CPUNanoCores, p.MemoryBytes, p.Restarts, p.Status)
		if !containers {
			continue
		}
		for j := range p.Containers {
			c := &p.Containers[j]
			row("", "  "+c.Name, c.CPUNanoCores, c.MemoryBytes, c.Restarts, c.State)
		}
	}
	return &t
}

// millicores formats nanocores as millicores, rounded up as kubectl does.
func millicores(nano *uint64) string {
	if nano == nil {
		return "-"
	}
	milli := *nano / 1e6
	if *nano%1e6 != 0 {
		milli++
	}
	return fmt.Sprintf("%dm", milli)
}

// share formats bytes as a percentage of memory; 0 bytes are unknown.
func share(bytes, of uint64) string {
	if bytes == 0 {
		return "-"
	}
	return percent(int64(min(bytes, 1<<62)), int64(min(of, 1<<62)))
}

// percent formats part as a percentage of whole. It is unknown if part is negative or
// whole is 0.
func percent(part, whole int64) string {
	if part < 0 || whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(part)/float64(whole))
}
