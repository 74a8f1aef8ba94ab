package preflight

import (
	"fmt"
	"slices"
	"strings"
)

// judgeReleases judges containerd and the OCI runtimes by their known
// vulnerabilities. It never fails: the node works with them.
func judgeReleases(f *Facts) []Finding {
	var out []Finding
	if f.Runtime.Kind == Answered && f.Runtime.Name == "containerd" {
		holes := containerdHoles
		if f.Runtime.RestartMonitorOff {
			holes = slices.DeleteFunc(slices.Clone(holes), func(h hole) bool { return h.restartMonitor })
		}
		out = append(out, judgeRelease("containerd", f.Runtime.Version, holes, f.Packages)...)
	}
	// What runs the containers is known where it is a package: neither CRI nor
	// the file tells its version.
	for _, p := range f.Packages {
		switch p.Name {
		case "crun":
			out = append(out, judgeRelease(p.Name, p.Version, crunHoles, f.Packages)...)
		case "runc":
			out = append(out, judgeRelease(p.Name, p.Version, runcHoles, f.Packages)...)
		}
	}
	return out
}

func judgeRelease(name, version string, holes []hole, packages []Package) []Finding {
	id := name + "-security"
	r, ok := parseRelease(version)
	if !ok {
		return []Finding{warn(id, fmt.Sprintf("cannot tell whether %s has known vulnerabilities: its version %q cannot be read", name, version),
			"use a release of "+name)}
	}
	holes = slices.DeleteFunc(slices.Clone(holes), func(h hole) bool { return !h.in(r) })
	if len(holes) == 0 {
		return nil
	}
	pkg := packageOf(name, r, packages)
	if pkg != nil {
		holes = slices.DeleteFunc(holes, func(h hole) bool { return slices.Contains(pkg.Repairs, h.cve) })
		if len(holes) == 0 {
			return nil
		}
	}
	cves := make([]string, 0, len(holes))
	for _, h := range holes {
		cves = append(cves, h.cve)
	}
	list := strings.Join(cves, ", ")
	switch {
	case pkg != nil && pkg.Changelog:
		return []Finding{warn(id, fmt.Sprintf("the changelog of the package %s %s names no repair of %s", name, pkg.Version, list),
			fmt.Sprintf("upgrade the package, or see what the distribution says of %s", list))}
	case pkg != nil || r.build == packaged:
		return []Finding{warn(id, fmt.Sprintf("cannot tell whether %s %s of this distribution has repairs of %s: the package's changelog is not installed", name, version, list),
			"see what the distribution says of "+list)}
	case r.build == custom:
		return []Finding{warn(id, fmt.Sprintf("cannot tell whether %s %s, which is not a release of its project, has repairs of %s", name, version, list),
			"ask whoever built it")}
	}
	var effects []string
	good := holes[0].repairFor(r)
	for _, h := range holes {
		effects = append(effects, fmt.Sprintf("%s (it lets %s)", h.cve, h.effect))
		if n := h.repairFor(r); (release{major: good.major, minor: good.minor, patch: good.patch}).before(n) {
			good = n
		}
	}
	return []Finding{warn(id, fmt.Sprintf("%s %s has %s", name, version, strings.Join(effects, ", ")),
		fmt.Sprintf("use %s %s or later", name, good))}
}

// packageOf finds the distribution's package that release r of name is from,
// or nil: what runs can be another build than what is installed.
func packageOf(name string, r release, packages []Package) *Package {
	for i := range packages {
		p := &packages[i]
		if p.Name != name {
			continue
		}
		if v, ok := parseRelease(p.Version); ok && v.major == r.major && v.minor == r.minor && v.patch == r.patch {
			return p
		}
	}
	return nil
}
