/*
 * The program of a pod sandbox: holds the namespaces, reaps orphaned processes
 * of the pod, and exits on SIGTERM or SIGINT.
 */
#include <signal.h>
#include <stddef.h>

int main(void)
{
	sigset_t end;

	/* If SIGCHLD is ignored, the kernel reaps children, see sigaction(2). */
	signal(SIGCHLD, SIG_IGN);

	/* Process 1 of a PID namespace ignores signals with the default action. */
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigaddset(&end, SIGINT);
	sigprocmask(SIG_BLOCK, &end, NULL);

	while (sigwaitinfo(&end, NULL) < 0)
		;
	return 0;
}
