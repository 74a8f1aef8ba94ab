package config

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// PlainPodURL returns what the operator must do about a staticPodURL without TLS, else "":
// anyone on the path to that server can choose the node's pods, which may be privileged.
// Loopback is safe.
func (cfg *Config) PlainPodURL() string {
	u, err := url.Parse(cfg.Kubelet.StaticPodURL)
	if err != nil || u.Scheme != "http" || loopback(u.Hostname()) {
		return ""
	}
	return "staticPodURL is http, so anyone on the path to " + u.Host + " can run pods on this node: use https"
}

// loopback reports whether a host is this one. It does not resolve names other than localhost:
// the result would not be authenticated either.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// HealthzAddress returns the address of /healthz, or "" if it is disabled.
func (cfg *Config) HealthzAddress() string {
	port := *cfg.Kubelet.HealthzPort
	if port == 0 {
		return ""
	}
	return net.JoinHostPort(cfg.Kubelet.HealthzBindAddress, strconv.Itoa(int(port)))
}

// MaxBackoff returns the limit of the crash loop backoff; 0 means the default.
func (cfg *Config) MaxBackoff() time.Duration {
	if p := cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod; p != nil {
		return p.Duration
	}
	return 0
}
