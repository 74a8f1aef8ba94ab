package config

import (
	"strings"
	"testing"
)

func TestPlainPodURL(t *testing.T) {
	for url, want := range map[string]bool{
		"": false, "https://example.com/pods": false, "http://127.0.0.1:8080/pods": false, "http://localhost/pods": false,
		"http://[::1]/pods": false, "http://example.com/pods": true, "http://user:hunter2@10.0.0.1:8080/pods": true,
	} {
		cfg := &Config{}
		cfg.Kubelet.StaticPodURL = url
		problem := cfg.PlainPodURL()
		if (problem != "") != want || strings.Contains(problem, "hunter2") {
			t.Errorf("%q: %q", url, problem)
		}
	}
}
