package agent

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/fake"
)

// Pods start a few at a time; those that wait for an image hold up nobody.
func TestPullsHoldUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.Inject("PullImage", fake.Fault{Hang: true})
		var wanted []*v1.Pod
		for i := range 20 {
			p := shell(t, fmt.Sprintf("pulls-%d", i), "Always", "sleep 100000")
			p.Spec.Containers[0].Image = fmt.Sprintf("localhost/none:%d", i)
			wanted = append(wanted, p)
		}
		web := shell(t, "web", "Always", "sleep 100000")
		l.want(append(wanted, web)...)
		l.start()
		l.settle(5 * time.Second)
		if st := l.status(web.UID); st.Phase != v1.PodRunning {
			t.Errorf("while 20 others pull the pod is %s", st.Phase)
		}
	})
}

// A runtime that hangs over some pods holds up the others for a while only.
func TestHungStartsHoldUpOthersForAWhile(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.Inject("RunPodSandbox", fake.Fault{Hang: true, Times: 64})
		var wanted []*v1.Pod
		for i := range 64 {
			wanted = append(wanted, shell(t, fmt.Sprintf("hangs-%d", i), "Always", "sleep 100000"))
		}
		l.cfg.Kubelet.MaxPods = 110
		l.want(wanted...)
		l.start()
		l.settle(15 * time.Second)
		asked := l.runtime.Count("RunPodSandbox")
		l.settle(10 * time.Second)
		if more := l.runtime.Count("RunPodSandbox"); asked == 0 || more <= asked {
			t.Errorf("%d sandboxes were asked for, %d after ten more seconds", asked, more)
		}
		l.settle(15 * time.Minute)
		if got := len(l.running()); got != 64 {
			t.Errorf("%d of 64 pods run in the end", got)
		}
	})
}
