package podsync

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A pod that is kept despite unsupported fields ends when its containers have completed.
func TestKeptPodEnds(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		once := func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }
		id := b.runs(podOn(once))
		p := podOn(once)
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "unsupported"}}
		b.OnPodAdded(p)
		if b.syncs(p) {
			t.Error("it is done while its container runs")
		}
		b.rt.ExitContainer(id, 0)
		if !b.syncs(p) {
			t.Error("it is not done although its container has completed")
		}
		if _, st, _ := b.Statuses.Get(p.UID); st.Phase != v1.PodSucceeded {
			t.Errorf("phase %s", st.Phase)
		}
	})
}
