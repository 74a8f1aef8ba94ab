package plugin

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkRun measures ADD and DEL of a container with two host ports next to another
// container, without the start of a process. It reports the CPU time of each. The
// allocations are those of both.
func BenchmarkRun(b *testing.B) {
	for _, protocol := range []string{"tcp", "udp"} {
		b.Run(protocol, func(b *testing.B) {
			n := newNode(b)
			n.must("ADD", n.newContainer(), n.config("1.0.0", crio))
			c := n.newContainer()
			config := n.config("1.0.0", fmt.Sprintf(`"runtimeConfig":{"portMappings":[{"hostPort":9080,"containerPort":80,"protocol":%q},{"hostPort":9443,"containerPort":443,"protocol":%[1]q}]}`, protocol))
			spent := map[string]time.Duration{}
			b.ReportAllocs()
			b.ResetTimer()
			if err := n.on(func() error {
				for range b.N {
					for _, verb := range []string{"ADD", "DEL"} {
						env := c.environment()
						env["CNI_COMMAND"] = verb
						before := processor()
						if exit := Run(func(name string) string { return env[name] }, strings.NewReader(config), io.Discard, io.Discard); exit != 0 {
							return fmt.Errorf("%s exits with %d", verb, exit)
						}
						spent[verb] += processor() - before
					}
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			for verb, d := range spent {
				b.ReportMetric(float64(d.Microseconds())/1000/float64(b.N), verb+"-cpu-ms/op")
			}
		})
	}
}

// processor returns the CPU time of this process.
func processor() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
