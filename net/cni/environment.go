package cni

import (
	"net"
	"net/netip"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// verb is what a runtime asks for (CNI_COMMAND).
type verb string

const (
	add     verb = "ADD"
	del     verb = "DEL"
	check   verb = "CHECK"
	gc      verb = "GC"
	status  verb = "STATUS"
	version verb = "VERSION"
)

// environment is what a runtime says in the environment of an attachment.
type environment struct {
	id    ID
	netns string
	args  arguments
}

// readEnvironment reads the variables that a verb needs. CNI_PATH is not looked
// at: no other plugin is called.
func readEnvironment(get func(string) string, v verb) (*environment, *Error) {
	e := &environment{
		id:    ID{ContainerID: get("CNI_CONTAINERID"), Interface: get("CNI_IFNAME")},
		netns: get("CNI_NETNS"),
	}
	var faults []string
	if !isName(e.id.ContainerID) {
		faults = append(faults, invalidVariable("CNI_CONTAINERID", e.id.ContainerID, nameRule))
	}
	if !isInterface(e.id.Interface) {
		faults = append(faults, invalidVariable("CNI_IFNAME", e.id.Interface, interfaceRule))
	}
	if fault := e.checkNetNS(isTrue(get("CNI_NETNS_OVERRIDE")), v); fault != "" {
		faults = append(faults, fault)
	}
	var err error
	if e.args, err = readArguments(get("CNI_ARGS")); err != nil && v != del {
		faults = append(faults, "CNI_ARGS: "+err.Error())
	}
	if faults != nil {
		return nil, environmentError(strings.Join(faults, "; "))
	}
	return e, nil
}

func environmentError(details string) *Error {
	return &Error{Code: CodeInvalidEnvironment, Msg: "the environment variables are not valid", Details: details}
}

func invalidVariable(name, value, rule string) string {
	if value == "" {
		return name + " is missing: " + rule
	}
	return name + " is " + quoteShort(value) + ": " + rule
}

// checkNetNS sees to where the container is. To attach the namespace of the plugin
// itself, the host's, would cut the host off, unless it is meant
// (CNI_NETNS_OVERRIDE). To detach it would as well: a path like /proc/7/ns/net
// may lead to another process by now, and there is none any more.
func (e *environment) checkNetNS(override bool, v verb) (fault string) {
	const rule = "write the absolute path of the container's network namespace"
	sound := path.IsAbs(e.netns) && len(e.netns) <= maxPath
	own, gone := false, false
	if sound {
		own, gone = statNetNS(e.netns)
	}
	own = own && !override
	switch {
	case v == del && (!sound || own || gone):
		e.netns = ""
	case !sound:
		return invalidVariable("CNI_NETNS", e.netns, rule)
	case own:
		return invalidVariable("CNI_NETNS", e.netns, "this is the plugin's own network namespace, the host's: "+rule+", or set CNI_NETNS_OVERRIDE=1 if it is meant")
	}
	return ""
}

// statNetNS says whether a network namespace is that of the calling thread, or
// whether its file is gone.
func statNetNS(file string) (own, gone bool) {
	var theirs, ours unix.Stat_t
	switch err := unix.Stat(file, &theirs); err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR:
		return false, true
	default:
		return false, false
	}
	if unix.Stat("/proc/thread-self/ns/net", &ours) != nil {
		return false, false
	}
	return theirs.Dev == ours.Dev && theirs.Ino == ours.Ino, false
}

// isTrue reads the two booleans that stand in the environment.
func isTrue(text string) bool { return text == "1" || strings.EqualFold(text, "true") }

// arguments are what stands in CNI_ARGS.
type arguments struct {
	pod Pod
	ips []netip.Addr
	mac net.HardwareAddr
}
