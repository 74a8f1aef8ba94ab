package preflight

import (
	"fmt"
	"slices"
	"strings"
)

// checkReleases checks containerd and the OCI runtimes for known vulnerabilities.
// It never returns Fail, because the node works with them.
func checkReleases(f *Facts) []Finding {
	var out []Finding
	if f.Runtime.Kind == Answered && f.Runtime.Name == "containerd" {
		found := vulnerabilities[f.Runtime.Name]
		if f.Runtime.RestartMonitorOff {
			found = slices.DeleteFunc(slices.Clone(found), func(h vulnerability) bool { return h.restartMonitor })
		}
		out = append(out, checkRelease(f.Runtime.Name, f.Runtime.Version, found, f.Packages)...)
	}
	// The version of the OCI runtime is known only from a package: neither CRI nor
	// the binary reports it.
	for _, p := range f.Packages {
		if p.Name == "crun" || p.Name == "runc" {
			out = append(out, checkRelease(p.Name, p.Version, vulnerabilities[p.Name], f.Packages)...)
		}
	}
	return out
}

func checkRelease(name, version string, found []vulnerability, packages []Package) []Finding {
	id := name + "-security"
	r, ok := parseRelease(version)
	if !ok {
		return []Finding{warn(id, fmt.Sprintf("cannot determine whether %s has known vulnerabilities: its version %q has no number", name, version),
			"use a release of "+name)}
	}
	found = slices.DeleteFunc(slices.Clone(found), func(h vulnerability) bool { return !h.in(r) })
	if len(found) == 0 {
		return nil
	}
	pkg := packageOf(name, r, packages)
	if pkg != nil {
		found = slices.DeleteFunc(found, func(h vulnerability) bool { return slices.Contains(pkg.FixedCVEs, h.cve) })
		if len(found) == 0 {
			return nil
		}
	}
	cves := make([]string, 0, len(found))
	for _, h := range found {
		cves = append(cves, h.cve)
	}
	list := strings.Join(cves, ", ")
	switch {
	case pkg != nil && pkg.Changelog:
		return []Finding{warn(id, fmt.Sprintf("the changelog of the package %s %s names no fix of %s", name, pkg.Version, list),
			fmt.Sprintf("upgrade the package, or check what the distribution publishes about %s", list))}
	case pkg != nil || r.build == packaged:
		return []Finding{warn(id, fmt.Sprintf("cannot determine whether %s %s of this distribution has fixes of %s: the package's changelog is not installed", name, version, list),
			"check what the distribution publishes about "+list)}
	case r.build == custom:
		return []Finding{warn(id, fmt.Sprintf("cannot determine whether %s %s, which is not an upstream release, has fixes of %s", name, version, list),
			"ask its vendor")}
	}
	var effects []string
	good := found[0].fixFor(r)
	for _, h := range found {
		effects = append(effects, fmt.Sprintf("%s (it lets %s)", h.cve, h.effect))
		if n := h.fixFor(r); good.compare(n) < 0 {
			good = n
		}
	}
	return []Finding{warn(id, fmt.Sprintf("%s %s has %s", name, version, strings.Join(effects, ", ")),
		fmt.Sprintf("use %s %s or later", name, good))}
}

// packageOf returns the distribution's package of release r of name, or nil. The
// running build may differ from the installed package.
func packageOf(name string, r release, packages []Package) *Package {
	for i := range packages {
		p := &packages[i]
		if p.Name != name {
			continue
		}
		if v, ok := parseRelease(p.Version); ok && v.number == r.number {
			return p
		}
	}
	return nil
}
