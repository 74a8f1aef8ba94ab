package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/tinylet/tinylet/test/testpod/report"
)

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

// reportCommand prints a report.Report as one line of JSON.
func reportCommand(set *flag.FlagSet) func(context.Context, []string) error {
	var ask report.Ask
	var out string
	var keepRunning bool
	set.Var((*list)(&ask.Sysctls), "sysctl", "`name` of a sysctl to report")
	set.Var((*list)(&ask.Cgroup), "cgroup", "`name` of a cgroup file to report")
	set.StringVar(&out, "out", "", "`file` to write to; empty is standard output")
	set.BoolVar(&keepRunning, "linger", false, "wait for SIGTERM then")
	return func(ctx context.Context, _ []string) error {
		b, err := json.Marshal(report.Read(ask))
		if err != nil {
			return fmt.Errorf("encode report: %w", err)
		}
		b = append(b, '\n')
		if out != "" {
			err = os.WriteFile(out, b, 0o644)
		} else {
			_, err = os.Stdout.Write(b)
		}
		if err != nil || !keepRunning {
			return err
		}
		ctx, stop := terminated(ctx)
		defer stop()
		<-ctx.Done()
		return nil
	}
}
