package container

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestPreStopOfNonsense(t *testing.T) {
	for name, text := range map[string]string{
		"empty":             "",
		"no JSON":           "{",
		"no object":         `"exec"`,
		"no handler":        `{}`,
		"empty command":     `{"exec":{}}`,
		"two handlers":      `{"exec":{"command":["a"]},"sleep":{"seconds":1}}`,
		"wrong type":        `{"sleep":{"seconds":"long"}}`,
		"without a measure": `{"exec":{"command":["` + strings.Repeat("a", maxHandler) + `"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if h := preStopOf(map[string]string{AnnotationPreStopHandler: text}); h != nil {
				t.Errorf("the handler is %v", h)
			}
		})
	}
	if h := preStopOf(map[string]string{AnnotationPreStopHandler: `{"sleep":{"seconds":3}}`}); h == nil || h.Sleep.Seconds != 3 {
		t.Errorf("the handler is %v", h)
	}
}

func TestSignals(t *testing.T) {
	for _, tt := range []struct {
		in   runtimeapi.Signal
		want v1.Signal
	}{
		{runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT, ""},
		{runtimeapi.Signal_SIGNAL_SIGTERM, v1.SIGTERM},
		{runtimeapi.Signal_SIGNAL_SIGRTMIN, v1.SIGRTMIN},
		{runtimeapi.Signal_SIGNAL_SIGRTMINPLUS15, v1.SIGRTMINPLUS15},
		{runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS14, v1.SIGRTMAXMINUS14},
		{runtimeapi.Signal(-1), ""},
	} {
		if got := signalOf(tt.in); got != tt.want {
			t.Errorf("%v is %q, want %q", tt.in, got, tt.want)
		}
	}
}
