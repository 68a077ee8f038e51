"""The tests of the shop: `python manage.py test`. They need no Redis, because each starts a server of its own."""

from django.contrib.auth.models import Permission, User
from django.test import TestCase

from schedq.integrations.django.outbox.relays import send_outbox
from schedq.testing import queue_tester
from shop.models import Order
from shop.tasks import charge


class OrderTest(TestCase):
    def setUp(self):
        self.jobs = self.enterContext(queue_tester())

    def state(self, job: str) -> dict:
        return self.client.get(f"/jobs/{job}").json()

    def test_an_order_leads_to_a_receipt_now_and_a_reminder_later(self):
        jobs = self.client.post("/orders/7", {"to": "ada@example.org"}).json()
        self.assertEqual(self.state(jobs["receipt"])["status"], "READY")

        self.assertEqual(send_outbox(), 2)
        self.assertEqual(self.jobs.run_due(), 1)
        self.assertEqual(self.state(jobs["receipt"])["result"], "receipt of order 7 sent to ada@example.org")
        self.jobs.fast_forward()
        self.assertEqual(self.state(jobs["reminder"])["status"], "SUCCESSFUL")

    def test_an_order_that_is_refused_leads_to_nothing(self):
        with self.assertRaises(ValueError):
            self.client.post("/orders/7", {"to": "eve@example.com"})

        self.assertEqual((Order.objects.count(), send_outbox()), (0, 0))

    def test_the_receipt_is_in_the_language_of_the_visitor(self):
        jobs = self.client.post("/orders/7", headers={"accept-language": "de"}).json()
        send_outbox()
        self.jobs.run_due()

        self.assertTrue(self.state(jobs["receipt"])["result"].startswith("Quittung"))

    def test_a_card_that_is_declined_is_tried_again(self):
        Order.objects.create(number=7, email="ada@example.org")
        result = charge.enqueue(7, failures=1)
        send_outbox()
        self.jobs.fast_forward()

        self.assertTrue(Order.objects.get().is_paid)
        self.assertEqual(self.state(result.id)["result"], "order 7 paid at attempt 2")

    async def test_an_async_view_enqueues(self):
        jobs = (await self.async_client.post("/orders/7/tell")).json()

        self.assertEqual(set(jobs), {"told", "paid"})


class AdminTest(TestCase):
    def test_those_with_the_permission_see_the_queues_and_a_link(self):
        self.enterContext(queue_tester())
        user = User.objects.create_user("ada", is_staff=True)
        self.client.force_login(user)
        self.assertEqual(self.client.get("/admin/schedq/sitequeues/").status_code, 403)

        user.user_permissions.add(Permission.objects.get(codename="view_queues"))

        self.assertContains(self.client.get("/admin/schedq/sitequeues/"), "/ops/schedq/queues/shop-mails")
