package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/pod"
)

func TestPick(t *testing.T) {
	var names []pod.Ref
	for _, name := range []string{"default/web", "default/web-2", "kube-system/dns", "kube-system/web", "default/db-1", "default/db-1"} {
		namespace, name, _ := strings.Cut(name, "/")
		names = append(names, pod.Ref{Namespace: namespace, Name: name})
	}
	tests := []struct {
		arg  string
		want int
		err  string
	}{
		{arg: "default/web", want: 0},
		{arg: "kube-system/web", want: 3},
		{arg: "web-2", want: 1},
		{arg: "web-", want: 1},
		{arg: "d", err: "default/db-1, default/web, default/web-2, kube-system/dns"},
		{arg: "dns", want: 2},
		{arg: "kube-system/d", want: 2},
		{arg: "db", want: 4},
		{arg: "web", err: "default/web, kube-system/web"},
		{arg: "eb", err: `no pod has the name or name prefix "eb"`},
		{arg: "", err: "no pod"},
	}
	for _, tt := range tests {
		t.Run(tt.arg, func(t *testing.T) {
			got, err := pick(names, tt.arg)
			if tt.err == "" {
				if err != nil || got != tt.want {
					t.Errorf("pick = %d, %v", got, err)
				}
				return
			}
			var e *ExitError
			if !errors.As(err, &e) || e.Code != codeNotFound || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error: %v", err)
			}
		})
	}
}
