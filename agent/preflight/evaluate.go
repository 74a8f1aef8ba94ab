package preflight

import (
	"fmt"
	"strings"
)

// Evaluate returns the findings for the facts, the most basic checks first. It is
// pure.
func Evaluate(f Facts) []Finding {
	var out []Finding
	for _, check := range []func(*Facts) []Finding{
		checkCaller,
		checkKernel,
		checkCgroups,
		checkFeatures,
		checkSettings,
		checkMemory,
		checkEviction,
		checkDirectories,
		checkKubelet,
		checkVolumes,
		checkRuntime,
		checkReleases,
		checkNetwork,
		checkClock,
		checkName,
		checkJournal,
		checkConfig,
	} {
		out = append(out, check(&f)...)
	}
	return out
}

func ok(id, format string, args ...any) Finding {
	return Finding{ID: id, Level: OK, What: fmt.Sprintf(format, args...)}
}

func warn(id, what, remedy string) Finding {
	return Finding{ID: id, Level: Warn, What: what, Remedy: remedy}
}

func fail(id, what, remedy string) Finding {
	return Finding{ID: id, Level: Fail, What: what, Remedy: remedy}
}

func checkCaller(f *Facts) []Finding {
	if f.UID == 0 {
		return nil
	}
	return []Finding{warn("caller",
		fmt.Sprintf("this check runs as user %d, which cannot read everything; some findings may be wrong", f.UID),
		"run tinylet check as root")}
}

// rebuild returns the remedy for a kernel without options.
func rebuild(options ...string) string {
	return "build the kernel with " + strings.Join(options, "=y, ") + "=y, or take one from a distribution"
}

// mib formats bytes as whole MiB.
func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes/mebibyte) }
