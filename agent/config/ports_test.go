package config

import (
	"slices"
	"testing"
)

func TestOwnPorts(t *testing.T) {
	for _, row := range []struct {
		port, healthz int32
		want          []uint16
	}{
		{10250, 10248, []uint16{10248, 10250}},
		{10250, 0, []uint16{10250}},
		{1234, 1234, []uint16{1234}},
	} {
		c := &Config{}
		c.Kubelet.Port, c.Kubelet.HealthzPort = row.port, &row.healthz
		if got := c.ListenPorts(); !slices.Equal(got, row.want) {
			t.Errorf("%d and %d: %v, want %v", row.port, row.healthz, got, row.want)
		}
	}
}
