package cni

import (
	"net"
	"net/netip"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// verb is the operation that a runtime requests (CNI_COMMAND).
type verb string

const (
	add     verb = "ADD"
	del     verb = "DEL"
	check   verb = "CHECK"
	gc      verb = "GC"
	status  verb = "STATUS"
	version verb = "VERSION"
)

// environment has the environment variables of an attachment.
type environment struct {
	id    ID
	netns string
	args  arguments
}

// readEnvironment reads the variables of an attachment. For DEL it ignores errors in
// CNI_NETNS and CNI_ARGS. It does not read CNI_PATH, because the plugin executes no other
// plugin.
func readEnvironment(get func(string) string, v verb) (*environment, error) {
	e := &environment{
		id:    ID{ContainerID: get("CNI_CONTAINERID"), Interface: get("CNI_IFNAME")},
		netns: get("CNI_NETNS"),
	}
	var problems []string
	if !isName(e.id.ContainerID) {
		problems = append(problems, invalidVariable("CNI_CONTAINERID", e.id.ContainerID, nameRule))
	}
	if !isInterface(e.id.Interface) {
		problems = append(problems, invalidVariable("CNI_IFNAME", e.id.Interface, interfaceRule))
	}
	if problem := e.checkNetNS(isTrue(get("CNI_NETNS_OVERRIDE")), v); problem != "" {
		problems = append(problems, problem)
	}
	var err error
	if e.args, err = readArguments(get("CNI_ARGS")); err != nil && v != del {
		problems = append(problems, "CNI_ARGS: "+err.Error())
	}
	if problems != nil {
		return nil, environmentError(strings.Join(problems, "; "))
	}
	return e, nil
}

func environmentError(details string) *Error {
	return &Error{Code: CodeInvalidEnvironment, Msg: "the environment variables are not valid", Details: details}
}

// invalidVariable returns the text for a missing or invalid variable.
func invalidVariable(name, value, rule string) string {
	if value == "" {
		return name + " is missing: " + rule
	}
	return name + " is " + quoteShort(value) + ": " + rule
}

// checkNetNS checks the path of the container's network namespace. It rejects the plugin's
// own namespace, which is the host's, unless CNI_NETNS_OVERRIDE permits it: attaching it
// would disconnect the host. DEL ignores such a path, because detaching would disconnect
// the host too. A path such as /proc/7/ns/net may belong to another process after the
// container has ended; the container's namespace then no longer exists.
func (e *environment) checkNetNS(override bool, v verb) (problem string) {
	const rule = "write the absolute path of the container's network namespace"
	valid := path.IsAbs(e.netns) && len(e.netns) <= maxPath
	own, gone := false, false
	if valid {
		own, gone = statNetNS(e.netns)
	}
	own = own && !override
	switch {
	case v == del && (!valid || own || gone):
		e.netns = ""
	case !valid:
		return invalidVariable("CNI_NETNS", e.netns, rule)
	case own:
		return invalidVariable("CNI_NETNS", e.netns, "this is the plugin's own network namespace, the host's: "+rule+", or set CNI_NETNS_OVERRIDE=1 if this is intended")
	}
	return ""
}

// statNetNS reports whether a network namespace is that of the calling thread, and whether
// its file does not exist.
func statNetNS(file string) (own, gone bool) {
	var container, self unix.Stat_t
	switch err := unix.Stat(file, &container); err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR:
		return false, true
	default:
		return false, false
	}
	if unix.Stat("/proc/thread-self/ns/net", &self) != nil {
		return false, false
	}
	return container.Dev == self.Dev && container.Ino == self.Ino, false
}

// isTrue reports whether CNI_NETNS_OVERRIDE or IgnoreUnknown is true.
func isTrue(text string) bool { return text == "1" || strings.EqualFold(text, "true") }

// arguments are the arguments in CNI_ARGS.
type arguments struct {
	pod Pod
	ips []netip.Addr
	mac net.HardwareAddr
}
