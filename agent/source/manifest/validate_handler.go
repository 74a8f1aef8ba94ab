package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// handlers checks the probes and lifecycle hooks of a container that may have
// them.
func (c *checks) handlers(container *v1.Container, spec *v1.PodSpec, path *field.Path) {
	c.probe(container.LivenessProbe, true, path.Child("livenessProbe"))
	c.probe(container.ReadinessProbe, false, path.Child("readinessProbe"))
	c.probe(container.StartupProbe, true, path.Child("startupProbe"))
	if container.Lifecycle == nil {
		return
	}
	at := path.Child("lifecycle")
	c.hook(container.Lifecycle.PostStart, spec, at.Child("postStart"))
	c.hook(container.Lifecycle.PreStop, spec, at.Child("preStop"))
	if signal := container.Lifecycle.StopSignal; signal != nil {
		c.stopSignal(*signal, spec, at.Child("stopSignal"))
	}
}

// stopSignal accepts names of Linux signals.
func (c *checks) stopSignal(signal v1.Signal, spec *v1.PodSpec, path *field.Path) {
	if spec.OS == nil {
		c.add(field.Forbidden(path, "may not be set for containers with empty `spec.os.name`"))
	} else if spec.OS.Name == v1.Linux && !isSignal(string(signal)) {
		c.add(field.Invalid(path, signal, "must be the name of a signal, such as SIGTERM or SIGRTMIN+3"))
	}
}

// signals are the names of signals in the API without their prefix SIG, apart from
// those between RTMIN and RTMAX.
var signals = []string{
	"ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL",
	"PIPE", "POLL", "PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP",
	"TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ", "RTMIN", "RTMAX",
}

// isSignal reports whether the API has a signal of this name.
func isSignal(name string) bool {
	name, ok := strings.CutPrefix(name, "SIG")
	if !ok {
		return false
	}
	for prefix, last := range map[string]int{"RTMIN+": 15, "RTMAX-": 14} {
		if distance, ok := strings.CutPrefix(name, prefix); ok {
			n, err := strconv.Atoi(distance)
			return err == nil && n >= 1 && n <= last && strconv.Itoa(n) == distance
		}
	}
	return slices.Contains(signals, name)
}

// noHandlers rejects probes and hooks on containers for which they do not run.
func (c *checks) noHandlers(container *v1.Container, path *field.Path) {
	const why = "may not be set for init containers without restartPolicy=Always"
	c.forbid(container.LivenessProbe != nil, path.Child("livenessProbe"), why)
	c.forbid(container.ReadinessProbe != nil, path.Child("readinessProbe"), why)
	c.forbid(container.StartupProbe != nil, path.Child("startupProbe"), why)
	c.forbid(container.Lifecycle != nil, path.Child("lifecycle"), why)
}

func (c *checks) probe(p *v1.Probe, oneSuccess bool, path *field.Path) {
	if p == nil {
		return
	}
	c.notNegative(path.Child("initialDelaySeconds"), int64(p.InitialDelaySeconds))
	c.notNegative(path.Child("timeoutSeconds"), int64(p.TimeoutSeconds))
	c.notNegative(path.Child("periodSeconds"), int64(p.PeriodSeconds))
	c.notNegative(path.Child("successThreshold"), int64(p.SuccessThreshold))
	c.notNegative(path.Child("failureThreshold"), int64(p.FailureThreshold))
	c.invalid(oneSuccess && p.SuccessThreshold != 1, path.Child("successThreshold"), p.SuccessThreshold, "must be 1")
	if grace := p.TerminationGracePeriodSeconds; grace != nil {
		at := path.Child("terminationGracePeriodSeconds")
		c.invalid(*grace < 1, at, *grace, "must be greater than 0")
		c.invalid(!oneSuccess, at, *grace, "must not be set for readinessProbes")
	}
	c.actions(p.Exec, p.HTTPGet, p.TCPSocket, path)
	if p.GRPC != nil {
		c.portNumber(path.Child("grpc", "port"), p.GRPC.Port)
	}
	c.oneHandler(len(setFields(&p.ProbeHandler)), path)
}

func (c *checks) oneHandler(given int, path *field.Path) {
	if given == 0 {
		c.add(field.Required(path, "must specify a handler type"))
	} else if given > 1 {
		c.add(field.Forbidden(path, "may not specify more than 1 handler type"))
	}
}

func (c *checks) hook(h *v1.LifecycleHandler, spec *v1.PodSpec, path *field.Path) {
	if h == nil {
		return
	}
	c.actions(h.Exec, h.HTTPGet, h.TCPSocket, path)
	if h.Sleep != nil {
		grace := spec.TerminationGracePeriodSeconds
		if h.Sleep.Seconds < 0 || (grace != nil && h.Sleep.Seconds > *grace) {
			c.add(field.Invalid(path.Child("sleep", "seconds"), h.Sleep.Seconds,
				fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", ptr.Deref(grace, v1.DefaultTerminationGracePeriodSeconds))))
		}
	}
	c.oneHandler(len(setFields(h)), path)
}

// actions checks the handlers that probes and hooks share.
func (c *checks) actions(exec *v1.ExecAction, get *v1.HTTPGetAction, socket *v1.TCPSocketAction, path *field.Path) {
	if exec != nil && len(exec.Command) == 0 {
		c.add(field.Required(path.Child("exec", "command"), ""))
	}
	if get != nil {
		c.noControl(path.Child("httpGet", "path"), get.Path)
		c.noControl(path.Child("httpGet", "host"), get.Host)
		c.portOrName(path.Child("httpGet", "port"), get.Port)
		oneOf(c, path.Child("httpGet", "scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
		for i, header := range get.HTTPHeaders {
			at := path.Child("httpGet", "httpHeaders").Index(i)
			c.name(at.Child("name"), header.Name, validation.IsHTTPHeaderName)
			c.noControl(at.Child("value"), header.Value)
		}
	}
	if socket != nil {
		c.noControl(path.Child("tcpSocket", "host"), socket.Host)
		c.portOrName(path.Child("tcpSocket", "port"), socket.Port)
	}
}

func (c *checks) portOrName(path *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.String {
		c.must(path, port.StrVal, validation.IsValidPortName)
		return
	}
	c.portNumber(path, port.IntVal)
}
