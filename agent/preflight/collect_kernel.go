package preflight

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// feature is a part of the kernel that may be a module.
type feature struct {
	module string
	option string
}

// The kernel features that are checked.
var features = []feature{
	{"overlay", "CONFIG_OVERLAY_FS"},
	{"veth", "CONFIG_VETH"},
	{"bridge", "CONFIG_BRIDGE"},
	{"nf_tables", "CONFIG_NF_TABLES"},
	{"nf_conntrack", "CONFIG_NF_CONNTRACK"},
	{"nft_chain_nat", "CONFIG_NFT_NAT"},
	{"nft_ct", "CONFIG_NFT_CT"},
	{"nft_fib_inet", "CONFIG_NFT_FIB_INET"},
	{"nft_masq", "CONFIG_NFT_MASQ"},
	{"nft_nat", "CONFIG_NFT_NAT"},
	{"nft_numgen", "CONFIG_NFT_NUMGEN"},
	{"nft_reject_inet", "CONFIG_NFT_REJECT"},
	{"sch_tbf", "CONFIG_NET_SCH_TBF"},
}

// Further options of the kernel's configuration that are checked.
var kernelOptions = []string{
	"CONFIG_CGROUPS", "CONFIG_MEMCG", "CONFIG_CPUSETS", "CONFIG_CGROUP_PIDS", "CONFIG_CGROUP_SCHED",
	"CONFIG_BLK_CGROUP", "CONFIG_PSI", "CONFIG_PSI_DEFAULT_DISABLED", "CONFIG_USER_NS", "CONFIG_SECCOMP_FILTER",
	"CONFIG_NF_TABLES_INET", optionBridgeFamily,
}

func (t tree) kernel() Kernel {
	k := Kernel{
		Release:     t.word("proc/sys/kernel/osrelease"),
		CommandLine: strings.Fields(t.word("proc/cmdline")),
		Modules:     map[string]Tristate{},
	}
	k.Config = t.kernelConfig(k.Release)
	files := t.moduleFiles(k.Release)
	for _, f := range features {
		k.Modules[f.module] = t.module(f, k.Config, files)
	}
	for _, row := range t.lines("proc/filesystems") {
		if row[len(row)-1] == "overlay" {
			k.Modules["overlay"] = Yes
		}
	}
	k.Pressure = t.pressure()
	k.Seccomp = t.seccomp()
	k.UserNamespaces = t.userNamespaces()
	return k
}

// kernelConfig reads the running kernel's configuration. It returns nil if there is
// none.
func (t tree) kernelConfig(release string) map[string]string {
	b, err := t.readGzip("proc/config.gz")
	if err != nil && release == path.Base(release) {
		b, err = t.read("boot/config-" + release)
	}
	if err != nil {
		return nil
	}
	return parseKernelConfig(b)
}

// parseKernelConfig returns the options that are checked. An option that is not set
// is "n".
func parseKernelConfig(b []byte) map[string]string {
	out := map[string]string{}
	for _, name := range kernelOptions {
		out[name] = "n"
	}
	for _, f := range features {
		out[f.option] = "n"
	}
	for line := range bytes.Lines(b) {
		name, value, ok := strings.Cut(strings.TrimSpace(string(line)), "=")
		if _, known := out[name]; ok && known {
			out[name] = value
		}
	}
	return out
}

// moduleFiles returns the names of the modules that are built in or installed; nil
// if no list can be read.
func (t tree) moduleFiles(release string) map[string]bool {
	if release != path.Base(release) {
		return nil
	}
	var out map[string]bool
	for _, dir := range []string{"lib/modules/", "usr/lib/modules/"} {
		for _, list := range []string{"modules.builtin", "modules.dep"} {
			b, err := t.read(dir + release + "/" + list)
			if err != nil {
				continue
			}
			if out == nil {
				out = map[string]bool{}
			}
			for line := range bytes.Lines(b) {
				if name := moduleName(string(line)); name != "" {
					out[name] = true
				}
			}
		}
	}
	return out
}

// moduleName returns nf_tables for "kernel/net/netfilter/nf_tables.ko.xz: ...".
func moduleName(line string) string {
	file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
	name, _, ok := strings.Cut(path.Base(file), ".ko")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(name, "-", "_")
}

func (t tree) module(f feature, config map[string]string, files map[string]bool) Tristate {
	switch {
	case t.exists("sys/module/" + f.module), files[f.module], config[f.option] == "y":
		return Yes
	case config[f.option] == "n", config[f.option] == "m", files != nil: // its file does not exist
		return No
	}
	return Unknown
}

// pressure returns No if PSI is not in the kernel or if it is disabled; only a read
// of the file detects the latter.
func (t tree) pressure() Tristate {
	_, err := t.read("proc/pressure/memory")
	switch {
	case err == nil:
		return Yes
	case errors.Is(err, os.ErrPermission) || !t.exists("proc/sys"):
		return Unknown
	}
	return No
}

func (t tree) seccomp() Tristate {
	if t.exists("proc/sys/kernel/seccomp/actions_avail") {
		return Yes
	}
	if !t.exists("proc/sys/kernel") {
		return Unknown
	}
	return No
}

func (t tree) userNamespaces() Tristate {
	_, err := os.Lstat(t.path("proc/self/ns/user"))
	switch {
	case errors.Is(err, fs.ErrNotExist) && t.exists("proc/self/ns"):
		return No
	case err != nil:
		return Unknown
	}
	if t.flag("proc/sys/user/max_user_namespaces") == No {
		return No
	}
	return Yes
}
