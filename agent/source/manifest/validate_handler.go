package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// handlers checks the probes and hooks of a container that may have them.
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
	if container.Lifecycle.StopSignal != nil && spec.OS == nil {
		c.add(field.Forbidden(at.Child("stopSignal"), "needs spec.os.name"))
	}
}

// noHandlers refuses probes and hooks where nothing would run them.
func (c *checks) noHandlers(container *v1.Container, path *field.Path) {
	const why = "only regular containers and init containers of restartPolicy Always have it"
	if container.LivenessProbe != nil {
		c.add(field.Forbidden(path.Child("livenessProbe"), why))
	}
	if container.ReadinessProbe != nil {
		c.add(field.Forbidden(path.Child("readinessProbe"), why))
	}
	if container.StartupProbe != nil {
		c.add(field.Forbidden(path.Child("startupProbe"), why))
	}
	if container.Lifecycle != nil {
		c.add(field.Forbidden(path.Child("lifecycle"), why))
	}
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
	if oneSuccess && p.SuccessThreshold != 1 {
		c.add(field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	if grace := p.TerminationGracePeriodSeconds; grace != nil {
		if *grace < 1 {
			c.add(field.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be positive"))
		}
		if !oneSuccess {
			c.add(field.Forbidden(path.Child("terminationGracePeriodSeconds"), "a readiness probe stops nothing"))
		}
	}
	given := c.actions(p.Exec, p.HTTPGet, p.TCPSocket, path)
	if p.GRPC != nil {
		given++
		c.portNumber(path.Child("grpc", "port"), p.GRPC.Port)
	}
	if given != 1 {
		c.add(field.Invalid(path, "", "must name exactly one handler"))
	}
}

func (c *checks) hook(h *v1.LifecycleHandler, spec *v1.PodSpec, path *field.Path) {
	if h == nil {
		return
	}
	given := c.actions(h.Exec, h.HTTPGet, h.TCPSocket, path)
	if h.Sleep != nil {
		given++
		grace := spec.TerminationGracePeriodSeconds
		if h.Sleep.Seconds < 0 || (grace != nil && h.Sleep.Seconds > *grace) {
			c.add(field.Invalid(path.Child("sleep", "seconds"), h.Sleep.Seconds, "must be from 0 to terminationGracePeriodSeconds"))
		}
	}
	if given != 1 {
		c.add(field.Invalid(path, "", "must name exactly one handler"))
	}
}

// actions checks the handlers that probes and hooks share and counts them.
func (c *checks) actions(exec *v1.ExecAction, get *v1.HTTPGetAction, socket *v1.TCPSocketAction, path *field.Path) (given int) {
	if exec != nil {
		given++
		if len(exec.Command) == 0 {
			c.add(field.Required(path.Child("exec", "command"), ""))
		}
	}
	if get != nil {
		given++
		c.portOrName(path.Child("httpGet", "port"), get.Port)
		oneOf(c, path.Child("httpGet", "scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
		for i, header := range get.HTTPHeaders {
			c.name(path.Child("httpGet", "httpHeaders").Index(i).Child("name"), header.Name, validation.IsHTTPHeaderName)
		}
	}
	if socket != nil {
		given++
		c.portOrName(path.Child("tcpSocket", "port"), socket.Port)
	}
	return given
}

func (c *checks) portOrName(path *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.String {
		c.must(path, port.StrVal, validation.IsValidPortName)
		return
	}
	c.portNumber(path, port.IntVal)
}
