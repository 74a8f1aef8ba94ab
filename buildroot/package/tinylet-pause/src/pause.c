/*
 * The program of a pod's sandbox: holds the namespaces, reaps the processes
 * that the pod leaves behind, and ends on TERM or INT.
 */
#include <signal.h>
#include <stddef.h>

int main(void)
{
	sigset_t end;

	/* With SIGCHLD ignored the kernel reaps, see sigaction(2). */
	signal(SIGCHLD, SIG_IGN);

	/* Process 1 of a PID namespace gets no signal at its default action. */
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigaddset(&end, SIGINT);
	sigprocmask(SIG_BLOCK, &end, NULL);

	while (sigwaitinfo(&end, NULL) < 0)
		;
	return 0;
}
