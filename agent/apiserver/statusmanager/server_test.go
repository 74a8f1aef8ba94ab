package statusmanager_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
)

var (
	errLink      = errors.New("dial tcp 10.0.0.1:6443: connection refused")
	podsResource = schema.GroupResource{Resource: "pods"}
)

type call = apiservertest.Call

// server is an API server with pods.
type server struct {
	*apiservertest.Server
	t      *testing.T
	faults apiservertest.Faults
}

func newServer(t *testing.T) *server {
	s := &server{t: t, Server: apiservertest.New()}
	s.latency(10 * time.Millisecond)
	return s
}

// before sets the response to requests, see apiservertest.Faults; nil lets them succeed.
func (s *server) before(f func(ctx context.Context, c call) error) {
	s.faults.Before = f
	s.SetFaults(s.faults)
}

// after may lose the responses to requests.
func (s *server) after(f func(c call) error) {
	s.faults.After = func(_ context.Context, c call) error { return f(c) }
	s.SetFaults(s.faults)
}

func (s *server) latency(d time.Duration) {
	s.faults.Latency = d
	s.SetFaults(s.faults)
}

// keeps changes each status before it is stored.
func (s *server) keeps(f func(*v1.PodStatus)) {
	s.faults.Admit = func(o runtime.Object) { f(&o.(*v1.Pod).Status) }
	s.SetFaults(s.faults)
}

// watch makes f receive all pods now and after each change; nil is a watch that broke.
func (s *server) watch(f func([]*v1.Pod)) {
	if f == nil {
		s.OnChange(nil)
		return
	}
	s.OnChange(func(all []apiservertest.Object) {
		var pods []*v1.Pod
		for _, o := range all {
			pods = append(pods, o.(*v1.Pod))
		}
		f(pods)
	})
}

// put adds or changes a pod on behalf of another client.
func (s *server) put(p *v1.Pod) *v1.Pod { return s.Put(p).(*v1.Pod) }

func (s *server) drop(name string) { s.Remove(apiclient.Pods, "n", name) }

func (s *server) get(name string) *v1.Pod {
	all := apiservertest.All[*v1.Pod](s.Server)
	if i := slices.IndexFunc(all, func(p *v1.Pod) bool { return p.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// since returns the requests after the first n.
func (s *server) since(n int) []call {
	calls := s.Calls()
	return calls[min(n, len(calls)):]
}

func (s *server) count() int { return len(s.Calls()) }

// check checks the form of all requests.
func (s *server) check() {
	for _, c := range s.Calls() {
		good := c.Resource == apiclient.Pods
		switch c.Verb {
		case "create":
			p := c.Object.(*v1.Pod)
			good = good && c.Namespace == p.Namespace && p.UID == "" && p.ResourceVersion == ""
		case "patch":
			good = good && c.Subresource == "status" && c.PatchType == types.StrategicMergePatchType
		case "delete":
			grace, p := c.Delete.GracePeriodSeconds, c.Delete.Preconditions
			good = good && grace != nil && *grace == 0 && p != nil && p.UID != nil
		}
		if !good {
			s.t.Errorf("%s: %+v", c, c)
		}
	}
}
