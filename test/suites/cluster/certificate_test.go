//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/tinylet/tinylet/test/harness/board"
)

const (
	autoApproval = "kubeadm:node-autoapprove-bootstrap"
	enrolFile    = "/etc/kubernetes/enrol.conf"
)

// enrolling is the agent's configuration with a credential for when the
// board's certificate has expired.
const enrolling = config + `---
apiVersion: tinylet.dev/v1alpha1
kind: TinyletConfiguration
enrolKubeconfig: ` + enrolFile + "\n"

// TestCertificates has a node wait for its certificate, lose its kubeconfig,
// and come back after its certificate has expired. Whatever it lacks, its
// static pods run.
func TestCertificates(t *testing.T) {
	l := prepareLab(t)
	l.c.Must(t, "delete", "clusterrolebinding", autoApproval)
	local := board.File{Path: staticFile, Mode: 0o644, Data: []byte(static)}
	l.vm = l.bootWith(joining(l.bootstrap(), local))
	l.run(t,
		step{"nobody approves", lab.unapproved},
		step{"denied, then approved", lab.denied},
		step{"broken kubeconfig", lab.brokenKubeconfig},
	)
	l.c.Must(t, "create", "clusterrolebinding", autoApproval,
		"--clusterrole=system:certificates.k8s.io:certificatesigningrequests:nodeclient", "--group=system:bootstrappers:kubeadm:default-node-token")

	l.expireWhileOff(joining(nil))
	l.run(t, step{"expired, without a credential", lab.expiredForGood})

	// The stale token of the bootstrap kubeconfig has to give way.
	stale := joining(l.kubeconfig(l.c.Server(), l.expired()), board.File{Path: enrolFile, Mode: 0o600, Data: l.bootstrap()})
	stale[0].Data = []byte(enrolling)
	l.expireWhileOff(stale)
	l.run(t, step{"expired, with a credential to enrol", lab.expiredAndEnrolled})
}

// localRuns waits until the board has its static pod.
func (l lab) localRuns() {
	l.Helper()
	l.until("the static pod runs", func() string {
		if got := l.onBoard("local"); len(got) != 1 || got["local-"+name] != "Running 1/1" {
			return fmt.Sprint(got)
		}
		return ""
	})
}

// problem returns the problem of the cluster that tinylet status reports, but for the journal,
// which has no key here.
func (l lab) problem() string {
	before, _, _ := strings.Cut(l.status().Cluster.Problem, "the Secrets of the cluster's pods are stored unencrypted")
	return strings.TrimSuffix(before, "; ")
}

// waitingRequest waits for a request of the node that nobody has decided.
func (l lab) waitingRequest() string {
	l.Helper()
	found := ""
	l.until("a request waits", func() string {
		var list certificatesv1.CertificateSigningRequestList
		l.c.Get(l.T, &list, "csr")
		for _, r := range list.Items {
			if len(r.Status.Conditions) == 0 {
				found = r.Name
				return ""
			}
		}
		return fmt.Sprintf("none of %d", len(list.Items))
	})
	return found
}

func (l lab) unapproved() {
	request := l.waitingRequest()
	l.localRuns()
	approve := "kubectl certificate approve " + request
	l.logged(approve)
	l.says(approve)
	if s := l.status(); s.Cluster.Registered {
		l.Errorf("status %+v", s)
	}
}

func (l lab) denied() {
	request, agent := l.waitingRequest(), l.agent()
	l.c.Must(l.T, "certificate", "deny", request)
	l.evented("CertificateRefused", request)
	l.says("Denied")
	l.logged(request + ": Denied")
	l.localRuns()
	next := l.waitingRequest()
	if next == request {
		l.Errorf("the node asks with %s again", request)
	}
	l.says("kubectl certificate approve " + next)
	l.c.Must(l.T, "certificate", "approve", next)
	l.until("the node is Ready", l.nodeReady)
	l.until("its static pod's mirror runs", func() string { return l.running("app=local", 1) })
	if problem := l.problem(); problem != "" {
		l.Errorf("status still has a problem: %s", problem)
	}
	if now := l.agent(); now != agent {
		l.Errorf("the agent is %s, and was %s", now, agent)
	}
	l.steady(1)
}

// brokenKubeconfig starts the agent with a kubeconfig that is none. A repaired
// file is taken without a restart.
func (l lab) brokenKubeconfig() {
	good := l.sh("cat " + kubeconfigFile)
	l.untouched(func() {
		for _, broken := range []struct{ text, want string }{
			{good[:len(good)/2] + "\x00\x01", kubeconfigFile},
			{"", kubeconfigFile},
			{strings.Replace(good, "server: https://", "server: ftp://", 1), "ftp://"},
		} {
			l.sh("/etc/init.d/S50tinylet stop; rm -f " + bootstrapFile + "; echo > /var/log/tinylet.log")
			l.put(kubeconfigFile, broken.text)
			l.sh("/etc/init.d/S50tinylet start")
			l.says(broken.want)
			l.logged(broken.want)
			l.Logf("tinylet status:\n%s", l.sh("tinylet status || true"))
			l.localRuns()
			agent, now := l.agent(), time.Now()
			l.put(kubeconfigFile, good)
			l.Logf("the kubeconfig is repaired: the lease is renewed after %.1f s", l.renewedSince(now).Seconds())
			if now := l.agent(); now != agent {
				l.Errorf("the agent is %s, and was %s", now, agent)
			}
		}
		l.until("the node is Ready", l.nodeReady)
	})
}

// expireWhileOff cuts the board's power, has its certificate expire, and
// starts it with more files.
func (l *lab) expireWhileOff(files []board.File) {
	l.Helper()
	const life = 20 * time.Second
	l.sh("/etc/init.d/S50tinylet stop")
	l.put(pairFile, string(l.c.NodeCertificate(l.T, name, life)))
	signed := time.Now()
	l.sh("chmod 600 " + pairFile + "; rm -f " + bootstrapFile + "; echo > /var/log/tinylet.log; sync")
	l.vm.Kill()
	time.Sleep(time.Until(signed.Add(life + time.Second)))
	l.vm = l.bootWith(files)
}

// podsCameBack looks that a pod of the cluster and a static one run although
// the node has no credentials.
func (l lab) podsCameBack() {
	l.Helper()
	l.localRuns()
	l.until("a pod of the journal runs", func() string {
		got := l.onBoard("steady-")
		for _, phase := range got {
			if phase == "Running 1/1" {
				return ""
			}
		}
		return fmt.Sprint(got)
	})
}

func (l lab) expiredForGood() {
	l.podsCameBack()
	for _, want := range []string{
		"the client certificate of " + kubeconfigFile + " expired at ",
		"kubeadm token create --print-join-command", bootstrapFile, "tinylet join",
	} {
		l.says(want)
		l.logged(want)
		l.evented("NoCredentials", want)
	}
	l.Logf("tinylet status:\n%s", l.sh("tinylet status || true"))
	// What is to be done helps.
	agent := l.agent()
	if exit, _, _ := l.join("--server="+l.c.Server(), "--token="+l.c.Token(l.T), "--ca-cert-hash="+l.c.CAHash(l.T)); exit != 0 {
		l.Errorf("tinylet join ended with %d", exit)
	}
	l.until("the node has a new certificate", l.problem)
	l.renewedSince(time.Now())
	l.until("the node is Ready", l.nodeReady)
	l.until("its pods run", func() string { return l.running("app in (steady,local)", 2) })
	if now := l.agent(); now != agent {
		l.Errorf("the agent is %s, and was %s", now, agent)
	}
}

func (l lab) expiredAndEnrolled() {
	l.podsCameBack()
	l.logged("requesting a certificate with " + enrolFile)
	l.evented("CertificateIssued", "client certificate, valid until")
	l.renewedSince(time.Now())
	l.until("the node is Ready", l.nodeReady)
	l.until("its pods run", func() string { return l.running("app in (steady,local)", 2) })
	if problem := l.problem(); problem != "" {
		l.Errorf("status still has a problem: %s", problem)
	}
}
