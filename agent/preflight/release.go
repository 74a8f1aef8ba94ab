package preflight

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// release is a version of the kernel, containerd, runc or crun.
type release struct {
	number releaseNumber
	build  build
}

// releaseNumber is the major, the minor and the patch number of a release.
type releaseNumber [3]int

func (n releaseNumber) String() string {
	return fmt.Sprintf("%d.%d.%d", n[0], n[1], n[2])
}

func (n releaseNumber) compare(other releaseNumber) int { return slices.Compare(n[:], other[:]) }

// before reports whether r is older than n.
func (r release) before(n releaseNumber) bool {
	order := r.number.compare(n)
	return order < 0 || order == 0 && r.build == preRelease
}

// build is the origin of a release, as far as its version shows it.
type build uint8

const (
	upstream build = iota
	// preRelease precedes the release with the same number.
	preRelease
	// packaged has a distribution's revision, which may fix vulnerabilities without
	// a new number.
	packaged
	// custom is a fork or a private build.
	custom
)

// The patterns are compiled at their first use: neither the start of the agent nor
// its CNI plugin needs them.
var (
	releasePattern    = pattern(`^v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(.*)$`)
	preReleasePattern = pattern(`^[-~](alpha|beta|rc)[.\d]*$`)
	// packagedPattern matches Debian's repacked sources, then a revision:
	// +ds1-2+b4, ~ds1-6+deb13u1, -0ubuntu1~24.04.1, -1.el9.
	packagedPattern = pattern(`^([~+](ds|dfsg|git)[.\da-f]*)?-\d[-+~.\w]*$`)
	// describedPattern matches the suffix of git describe for commits after a
	// release.
	describedPattern = pattern(`^-\d+-g[0-9a-f]{4,40}([-.+](m|dirty))?$`)
)

// pattern returns a function that compiles the expression at its first call.
func pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// parseRelease returns false if text does not begin with a version.
func parseRelease(text string) (release, bool) {
	m := releasePattern().FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return release{}, false
	}
	var r release
	for i := range r.number {
		r.number[i], _ = strconv.Atoi(m[i+1]) // at most six digits, or none
	}
	switch rest := m[4]; {
	case rest == "", describedPattern().MatchString(rest):
		r.build = upstream
	case preReleasePattern().MatchString(rest):
		r.build = preRelease
	case packagedPattern().MatchString(rest):
		r.build = packaged
	default:
		r.build = custom
	}
	return r, true
}

// vulnerability is a known vulnerability of a runtime.
type vulnerability struct {
	cve    string
	effect string // completes "it lets …"
	// fixed has the first fixed release of each branch, the oldest branch first.
	// A branch that is not listed has no fix, or, if it is after the last one, had
	// the fix from its beginning.
	fixed []releaseNumber
	// restartMonitor is true if the vulnerability needs a running restart monitor.
	restartMonitor bool
}

// vulnerabilities are those of each program, as published until November 2026. Add a
// new vulnerability as one entry.
var vulnerabilities = map[string][]vulnerability{
	"containerd": {
		{
			cve: "CVE-2024-25621", effect: "users of the node read and change files of containerd",
			fixed: []releaseNumber{{1, 7, 29}, {2, 0, 7}, {2, 1, 5}, {2, 2, 0}},
		},
		{
			cve: "CVE-2026-53488", effect: "an image run a command as root on the node", restartMonitor: true,
			fixed: []releaseNumber{{1, 7, 33}, {2, 0, 10}, {2, 1, 9}, {2, 2, 5}, {2, 3, 2}},
		},
		{
			cve: "CVE-2026-53495", effect: "a probe's command take containerd's memory",
			fixed: []releaseNumber{{1, 7, 35}, {2, 0, 12}, {2, 2, 8}, {2, 3, 5}},
		},
	},
	"runc": {{
		cve: "CVE-2025-31133", effect: "a container write to the node's files",
		fixed: []releaseNumber{{1, 2, 8}, {1, 3, 3}, {1, 4, 0}},
	}},
	"crun": {{
		cve: "CVE-2026-30892", effect: "kubectl exec run a command as another user than asked for",
		fixed: []releaseNumber{{1, 27, 0}},
	}},
}

// in reports whether r has the vulnerability, by its number and by whether it is a
// pre-release.
func (h *vulnerability) in(r release) bool {
	for _, good := range h.fixed {
		if slices.Equal(r.number[:2], good[:2]) {
			return r.before(good)
		}
	}
	return r.before(h.fixed[len(h.fixed)-1])
}

// fixFor returns the release to upgrade to: of r's branch, or else the first
// fixed one of a later branch.
func (h *vulnerability) fixFor(r release) releaseNumber {
	for _, good := range h.fixed {
		if r.before(good) {
			return good
		}
	}
	return h.fixed[len(h.fixed)-1]
}
